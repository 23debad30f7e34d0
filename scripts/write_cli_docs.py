"""Write docs/cli.md from the commands themselves."""

from pathlib import Path

from coref_automl.cli.reference import reference

if __name__ == "__main__":
    Path(__file__).parent.parent.joinpath("docs", "cli.md").write_text(reference(), "utf-8")
