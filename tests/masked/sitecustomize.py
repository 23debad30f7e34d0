"""Imported by every Python process that a masked suite starts: no os.sched_getaffinity, as on macOS."""

import os

if hasattr(os, "sched_getaffinity"):
    del os.sched_getaffinity
