"""What tests of the conformance kit ask of its findings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from musebench.testing.laws.law import Finding


def assert_held(found: Iterable[Finding]) -> None:
    for finding in found:
        assert finding.outcome == "held", finding.text()


def assert_broken(found: Iterable[Finding], laws: Collection[str], words: str) -> Finding:
    """One of `laws` is broken, and says `words`; that finding."""
    broken = [finding for finding in found if finding.outcome == "broken" and finding.law.name in laws]
    said = [finding for finding in broken if words in finding.sentence()]
    assert said, (laws, words, [finding.text() for finding in broken])
    return said[0]
