"""Preambles that training never sees: plain prose, written by hand, for the evaluation only."""

from __future__ import annotations

import random
from pathlib import Path

PROSE = Path(__file__).with_name("heldout.txt").read_text(encoding="utf-8").splitlines()

LEADS = (
    " Now answer in one word: what is the capital of {}?",
    "\n\nAnswer in one word: what is the capital of {}?",
    " What is the capital of {}?",
)


def heldout_preamble(rng: random.Random, pieces: int) -> str:
    """`pieces` different paragraphs of the held-out prose, joined by blanks (about 80 words each)."""
    return " ".join(rng.sample(PROSE, pieces))
