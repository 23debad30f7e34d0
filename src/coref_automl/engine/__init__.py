"""The engine: long work in this process, in processes of its own or on Ray; resumable, and never done twice."""
