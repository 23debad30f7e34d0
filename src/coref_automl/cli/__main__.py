"""`python -m coref_automl.cli`: the command, for launchers that start a module (accelerate launch -m, torchrun -m)."""

from coref_automl.cli.app import main

if __name__ == "__main__":
    main()
