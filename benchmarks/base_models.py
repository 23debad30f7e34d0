"""Models of base shape with new weights, which cost the same to run as trained ones."""

from __future__ import annotations

from typing import Any


def base_deberta(seq_len: int, *, layers: int = 12, hidden: int = 768, vocabulary: int = 130_000, seed: int = 0) -> Any:
    """A DeBERTa-v2 of base shape: 256 buckets, a vocabulary of 130,000. New weights cost the same as trained ones."""
    import torch
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden, max_position_embeddings=seq_len, max_relative_positions=512, position_buckets=256,
        relative_attention=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
        position_biased_input=False, type_vocab_size=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    return DebertaV2ForMaskedLM(config)


def base_modernbert(
    seq_len: int,
    *,
    layers: int = 22,
    hidden: int = 768,
    inner: int = 1152,
    every: int = 3,
    vocabulary: int = 50_368,
    seed: int = 0,
) -> Any:
    """A ModernBERT of base shape: 22 layers of 768, a vocabulary of 50,368, every third layer global."""
    import torch
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    torch.manual_seed(seed)
    return ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
            intermediate_size=inner, global_attn_every_n_layers=every, max_position_embeddings=seq_len,
            pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3,
        )
    )  # fmt: skip


def base_absolute(family: str, seq_len: int, *, vocabulary: int = 16_384, seed: int = 0) -> Any:
    """A bert, roberta or electra (generator head, as wide as its encoder) of 12 layers of 768."""
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    torch.manual_seed(seed)
    more = {"embedding_size": 768} if family == "electra" else {}
    config = AutoConfig.for_model(
        family, vocab_size=vocabulary, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        max_position_embeddings=seq_len + 2, pad_token_id=0, bos_token_id=2, eos_token_id=3, **more,
    )  # fmt: skip
    return AutoModelForMaskedLM.from_config(config)
