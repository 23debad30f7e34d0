"""Disentangled attention (DeBERTa) as Triton kernels: documents packed in rows, dropout, every gradient, no atomics."""
