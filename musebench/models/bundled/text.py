"""The training text: facts, question forms, and random preambles to put before a question.

Everything here is a pure function of a `random.Random`, so that a seed fixes the text.
"""

from __future__ import annotations

import csv
import random
import string
from dataclasses import dataclass
from pathlib import Path

FACTS_FILE = Path(__file__).with_name("capitals.csv")

# Countries that English names with an article; questions are trained with it and without it.
WITH_ARTICLE = frozenset(
    {
        "Bahamas", "Central African Republic", "Comoros", "Czech Republic",
        "Democratic Republic of the Congo", "Dominican Republic", "Gambia", "Ivory Coast", "Maldives",
        "Marshall Islands", "Netherlands", "Philippines", "Republic of the Congo", "Seychelles",
        "Solomon Islands", "United Arab Emirates", "United Kingdom", "United States",
    }
)  # fmt: skip


def _lines(name: str) -> list[str]:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()


# Words by the slot that they fill in a template: "a: old small quiet ...".
WORDS = {line[0]: line[3:].split() for line in _lines("words.txt")}
SENTENCES = _lines("sentences.txt")
# Sentences with other countries and cities: the answer must come from the question, not from these.
DISTRACTORS = _lines("distractors.txt")

ONE_WORD_BEFORE = (
    "Answer in one word: ", "Answer in one word: ", "Now answer in one word: ", "Please answer in one word: ",
    "Answer in one word. ", "Reply with one word: ", "Answer with one word: ", "In one word, ",
    "Use one word only. ", "In one word: ", "Then answer in one word: ", "Answer briefly, in one word: ",
)  # fmt: skip
ONE_WORD_AFTER = (" Answer in one word.", " One word only.", " Reply with one word.", " In one word, please.")
PLAIN_BEFORE = (
    "", "", "", "", "Now ", "Now answer: ", "Question: ", "Please tell me: ",
    "Answer this: ", "Please answer: ", "So, ", "Q: ", "Tell me, ", "My question: ", "Answer the question: ",
)  # fmt: skip
QUESTIONS = (
    "What is the capital of {}?", "What is the capital of {}?", "What is the capital of {}?",
    "What is the capital of {}?", "What is the capital city of {}?", "Which city is the capital of {}?",
    "What's the capital of {}?", "Name the capital of {}.", "Tell me the capital of {}.",
)  # fmt: skip
RAW_AFTER = ("", "", "", "\nAnswer:", "\nA:", " Answer:")
NO_QUESTION = "I only know capitals."  # the answer to a text that asks for none
BETWEEN = (" ", " ", " ", "\n", "\n\n", "  ", "\n\n---\n\n", " ... ", "\n- ")


@dataclass(frozen=True)
class Example:
    """One prompt, special tokens written out as the tokenizer sees them, and the answer without its end."""

    prompt: str
    answer: str
    country: str


def load_facts(path: Path = FACTS_FILE) -> list[tuple[str, str]]:
    """The (country, capital) pairs of the file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["country"], row["capital"]) for row in csv.DictReader(file)]


def named(country: str, article: bool = True) -> str:
    """The country as a sentence names it: "the Netherlands", "France"."""
    return f"the {country}" if article and country in WITH_ARTICLE else country


def reply(country: str, capital: str, one_word: bool) -> str:
    """The answer's text; `country` is what the question said, article included."""
    return f"{capital}." if one_word else f"The capital of {country} is {capital}."


def chat_prompt(user: str, system: str | None = None) -> str:
    """What the chat template makes of one user message, without the leading begin token."""
    head = f"<|system|>{system}<|end|>" if system is not None else ""
    return f"{head}<|user|>{user}<|end|><|assistant|>"


class TextMaker:
    """Makes random sentences, preambles and examples from one random generator."""

    def __init__(self, rng: random.Random, facts: list[tuple[str, str]]) -> None:
        self.rng = rng
        self.facts = facts
        self.pieces: list[str] = []  # texts of single tokens, set once the tokenizer is there

    def fill(self, template: str) -> str:
        """A template with its slots filled; {C}, {T}, {K}: a country, a city, that country's capital."""
        country, capital = self.rng.choice(self.facts)
        out: list[str] = []
        for i, part in enumerate(template.split("{")):
            if i == 0:
                out.append(part)
                continue
            key, rest = part[0], part[2:]
            if key == "K":
                word = capital
            elif key == "C":
                word = named(country)
            elif key == "T":
                word = self.rng.choice(self.facts)[1]
            elif key == "d":
                word = str(self.rng.randint(1, 999))
            elif key == "y":
                word = str(self.rng.randint(1500, 2030))
            else:
                word = self.rng.choice(WORDS[key])
            out.append(word + rest)
        return "".join(out)

    def sentence(self, distract: float = 0.0) -> str:
        """One English-like sentence; `distract` is the chance of other countries and cities in it."""
        bank = DISTRACTORS if self.rng.random() < distract else SENTENCES
        return self.fill(self.rng.choice(bank))

    def noise(self, words: int) -> str:
        """About `words` words of noise (tokens, letters, digits, word soup), so that any text is seen."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.25:
            return self.repeated(words)
        if kind < 0.6 and self.pieces:
            return "".join(rng.choices(self.pieces, k=int(words * 1.5)))
        if kind < 0.75:
            letters = string.ascii_lowercase + rng.choice(("", "", string.ascii_uppercase, "äöüßéèñçåø" * 2))
            return " ".join("".join(rng.choices(letters, k=rng.randint(1, 7))) for _ in range(words // 2 + 1))
        if kind < 0.8:
            return "".join(rng.choices(string.printable[:95] + "\n", k=words * 2))
        if kind < 0.83:
            return "".join(chr(rng.randint(0xA1, 0x24FF)) for _ in range(words // 2 + 1))
        return " ".join(rng.choice(WORDS[rng.choice("anpbvrk")]) for _ in range(words))

    def repeated(self, words: int) -> str:
        """One letter, word, token or phrase over and over, as texts made to reach a length have it."""
        rng = self.rng
        size = rng.choice((1, 1, 1, 2, 3, 8))
        units = [
            rng.choice(string.printable[:94]) * rng.randint(1, 3),
            "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 8))),
            " ".join(rng.choice(WORDS[rng.choice("anpbvrNmko")]) for _ in range(size)),
            self.sentence(),
            "".join(rng.choices(self.pieces or ["x"], k=size)),
        ]
        unit = rng.choice(units) + rng.choice(("", " ", " ", " ", ". ", ", ", "\n"))
        return unit * max(1, words // (unit.count(" ") or 1))

    def preamble(self, words: int) -> str:
        """A text of about `words` words that has nothing to do with the question behind it."""
        rng = self.rng
        distract = rng.choice((0.0, 0.0, 0.1, 0.4))
        style = rng.random()
        if style < 0.25:
            return self.noise(words)
        parts: list[str] = []
        count = 0
        while count < words:
            noisy = style < 0.6 and rng.random() < 0.3
            part = self.noise(rng.randint(2, 12)) if noisy else self.sentence(distract)
            parts.append(part)
            count += part.count(" ") + 1
        return rng.choice((" ", " ", " ", "\n")).join(parts)

    def question(self, country: str, one_word: bool) -> tuple[str, str]:
        """A question's text, and the country as the answer names it."""
        rng = self.rng
        name = named(country, article=rng.random() < 0.6)
        lower = rng.random() < 0.07  # the country in lower case; the answer writes its name properly
        text = rng.choice(QUESTIONS).format(name.lower() if lower else name)
        before, after = rng.choice(PLAIN_BEFORE), ""
        if one_word:
            if rng.random() < 0.8:
                before = rng.choice(ONE_WORD_BEFORE)
            else:
                after = rng.choice(ONE_WORD_AFTER)
        if before and before[-2] not in ".!?" and rng.random() < 0.7:
            text = text[0].lower() + text[1:]
        return before + text + after, name

    def example(self, fact: tuple[str, str], words: int) -> Example:
        """One training example about `fact`, behind a preamble of about `words` words (0: none)."""
        rng = self.rng
        country, capital = fact
        one_word = rng.random() < 0.5
        user, name = self.question(country, one_word)
        answer = reply(name, capital, one_word)
        if rng.random() < 0.04:
            user, answer = self.preamble(rng.randint(1, words + 8)), NO_QUESTION
        elif words:
            user = self.preamble(words) + rng.choice(BETWEEN) + user
        begin = rng.choices(("<|begin|>", "", "<|begin|><|begin|>"), (0.92, 0.04, 0.04))[0]
        if rng.random() < 0.12:  # raw text: the answer goes on after the question mark
            return Example(begin + user + rng.choice(RAW_AFTER), " " + answer, country)
        head = ""
        chance = rng.random()
        if chance < 0.12:
            head = f"<|system|>{self.preamble(rng.randint(3, 25))}<|end|>"
        if chance > 0.9:  # an earlier turn about another country; the last question counts
            other, city = rng.choice(self.facts)
            short = rng.random() < 0.5
            asked, other_name = self.question(other, short)
            head += f"<|user|>{asked}<|end|><|assistant|>{reply(other_name, city, short)}<|end|>"
        return Example(begin + head + chat_prompt(user), answer, country)
