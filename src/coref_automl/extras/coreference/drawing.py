"""The chains of a text as HTML. In: a text and its chains. Out: a fragment with coloured mentions, and a page around it."""

from __future__ import annotations

import html

from coref_automl.extras.coreference.predict import Chains, Confidence, chain_lines, mark_mentions

_HUES = 12


def in_html(text: str, chains: Chains, *, note: str = "", confidence: Confidence = ()) -> str:
    """A self-contained HTML fragment; hovering over a mention shows its chain and the probability of its link."""
    sizes = [len(chain) for chain in chains]
    links = {
        (number, span[0]): f", {value:.2f}"
        for number, (chain, values) in enumerate(zip(chains, confidence, strict=False))
        for span, value in zip(chain, values, strict=True)
        if value is not None
    }

    def opening(chain: int, position: int) -> str:
        name = html.escape(text[slice(*chains[chain][0])], quote=True)
        hue = (chain * 5 % _HUES) * 360 // _HUES  # neighboring chains get distant ones
        style = f"background:hsl({hue} 80% 85%);color:#111;border-radius:3px;padding:0 2px"
        return f'<mark title="{chain + 1}: {name} ({sizes[chain]}){links.get((chain, position), "")}" style="{style}">'

    body = mark_mentions(text, chains, opening, lambda chain: f"<sub>{chain + 1}</sub></mark>", html.escape)
    lines = chain_lines(text, chains, colour=False, confidence=confidence)
    legend = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    paragraph = f"<p>{html.escape(note)}</p>" if note else ""
    return f'{paragraph}<div style="line-height:1.9;white-space:pre-wrap">{body}</div><ul>{legend}</ul>'


def html_page(fragment: str, title: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    style = "<style>body{font-family:sans-serif;max-width:52em;margin:2em auto;padding:0 1em}</style>"
    return f'<!doctype html><html lang="ko"><head>{head}{style}</head><body>{fragment}</body></html>\n'
