"""Experiments: methods x lengths x seeds from one base, as plans on the engine; `study`, `adapt` and `demo` are such plans."""
