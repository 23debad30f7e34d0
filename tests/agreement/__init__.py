"""Generated studies, and whether every surface says the same of them: `python -m tests.agreement --count 2000 --seed 1`."""
