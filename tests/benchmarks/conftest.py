"""What the benchmark of relation extraction reads."""

from tests.extras.relation.conftest import encoder_folder, fresh_tokenizer, relation_file

__all__ = ["encoder_folder", "fresh_tokenizer", "relation_file"]
