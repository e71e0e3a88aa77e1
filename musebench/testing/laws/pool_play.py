"""Does a history to a pool as the engine would, and holds its laws after every verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import numpy as np

from musebench.core.errors import OutOfMemory, PoolFull, UnsupportedError, UsageError
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import Pool, PoolBounds, Storage
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.core.sharing import sharing_of
from musebench.core.stretch import Lasting
from musebench.testing.fake_storage import FakeStorage
from musebench.testing.laws import pool_laws as laws
from musebench.testing.laws.law import History, Impossible, counted, listed
from musebench.testing.laws.pool_histories import Bulk, End, PoolHistory, Rewind, Step
from musebench.testing.laws.pool_state import PoolState, WatchedRows, names_of

MakePool = Callable[[PoolBounds, Any], Pool]
MakeStorage = Callable[[PoolHistory], Any]

MOST_NEW = 8


def fake_storage(history: PoolHistory) -> Storage:
    """The rows that a history asks for."""
    return FakeStorage(history.memory, history.failing, history.moves, at_once=True, tells=True)


def pool_play(make: MakePool, storage: MakeStorage = fake_storage) -> Callable[[PoolHistory, History], None]:
    """A play of pools that `make(bounds, storage)` makes."""

    def play(drawn: PoolHistory, history: History) -> None:
        bounds = PoolBounds(drawn.sessions, drawn.context, drawn.capacity)
        rows = WatchedRows(storage(drawn))
        try:
            pool = make(bounds, rows.storage)
        except (UsageError, UnsupportedError) as error:
            raise Impossible(f"it is not made: {error}") from None
        player = _Player(pool, bounds, rows, history)
        player.begin()
        for verb in drawn.verbs:
            player.do(verb)
        player.empty()
        player.fill()

    return play


@dataclass
class _Part:
    """One sequence's tokens in a plan; `new`: it is admitted by it."""

    sequence: Sequence
    count: int
    new: bool = False
    decode: bool = False
    adopted: int = 0


class _Player:
    def __init__(self, pool: Pool, bounds: PoolBounds, rows: WatchedRows, history: History) -> None:
        self.pool = pool
        self.bounds = bounds
        self.rows = rows
        self.history = history
        self.state = PoolState(pool, bounds, rows, history)
        self.table = SequenceTable(bounds.max_sessions)
        self.alive: list[Sequence] = []
        self._sessions = 0
        self._shared = False  # a rewind may have left a position's cell to a fork

    # -- verbs ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        rows = self.pool.rows, self.rows.storage.rows
        self.history.hold(laws.START, rows == (0, 0), f"there are {rows[0]} rows before the first step")
        self.state.look()

    def do(self, verb: Any) -> None:
        if isinstance(verb, Step):
            self._step(verb)
        elif isinstance(verb, Bulk):
            self._bulk(verb.steps)
        elif self.alive:
            sequence = self.alive[verb.who % len(self.alive)]
            if isinstance(verb, End):
                self._end(sequence)
            elif isinstance(verb, Rewind):
                self._rewind(sequence, verb.to % (sequence.computed + 1))
            elif sequence.computed:
                self._fork(sequence, verb.upto % sequence.computed + 1)

    def empty(self) -> None:
        """Everybody lets go."""
        if not self.alive:
            return
        self.history.doing("releasing everybody")
        for sequence in list(self.alive):
            self._let_go(sequence)
        self.state.look()

    def fill(self) -> None:
        """Fill the empty pool to its last cell, then let who can decode ask for one more."""
        while self._slot() and self.pool.room > 0:
            tokens = min(self.pool.room, self.pool.capacity, self.bounds.max_context)
            alone = not self.alive
            if alone and self.bounds.max_sessions > 1:
                tokens = 1  # who has but one may decode later
            elif not alone and self._too_much(tokens + 1):
                continue
            part = self._opened(tokens, self._sessions, tokens)
            if part is None or (not alone and self.pool.quote(part.sequence) > self.pool.room):
                break
            if not self._reserve([part], laws.LAST_CELL if alone else None):
                break
        decoding = [_Part(one, 1, decode=True) for one in self.alive if self._decodes(one)]
        if decoding:
            self._reserve(decoding)
        self.empty()

    def _too_much(self, tokens: int) -> bool:
        """Ask for a token beyond the room; whether it was there nevertheless."""
        if tokens > self.bounds.max_context:
            return False
        part = self._opened(tokens, self._sessions, tokens)
        return part is not None and self._reserve([part])

    def _step(self, step: Step) -> None:
        parts: list[_Part] = []
        if self.alive:
            joining = dict.fromkeys(who % len(self.alive) for who in step.join)
            chosen = [self.alive[who] for who in joining]
            parts = [_Part(one, 1, decode=True) for one in chosen if self._decodes(one)]
            prefills = [one for one in chosen if not self._decodes(one) and _left(one) > 0]
            parts += [_Part(one, min(_left(one), step.slice)) for one in prefills]
        for tokens, prompt in step.opens:
            free = self.bounds.max_sessions - len(self.alive) - sum(part.new for part in parts)
            if (
                free > 0
                and (part := self._opened(min(tokens, self.bounds.max_context), prompt, step.slice))
                is not None
            ):
                parts.append(part)
        if parts:
            self._reserve(parts, undone=step.undone)

    def _end(self, sequence: Sequence) -> None:
        self.history.doing(f"releasing {names_of([sequence])}")
        self._let_go(sequence)
        self.state.look()

    def _rewind(self, sequence: Sequence, to: int) -> None:
        self.history.doing(f"rewinding {names_of([sequence])} to {counted(to, 'token')}")
        slot, before = sequence.slot, self.state.cells.get(sequence.slot, [])
        self._shared |= any(self.state.owners(cell) > 1 for cell in before[to:])
        self.pool.rewind(slot, to)
        self.state.keep(slot, to)
        self.table.computed[slot] = to
        expected = self.state.owned
        self.history.hold(
            laws.REWIND,
            self.pool.in_use == len(expected),
            f"{counted(self.pool.in_use, 'cell')} in use; the sequences own {len(expected)}",
        )
        self.state.look()

    def _fork(self, source: Sequence, upto: int) -> None:
        slot = self._slot()
        tokens = source.request.prompt[:upto]
        if not slot or len(tokens) < upto:
            return
        request = Request(self._name(), (*tokens, self._sessions), 2)
        if request.cells_needed > self.bounds.max_context or self.pool.refusal(request.cells_needed):
            return
        target = Sequence(self._sessions, request, self.table)
        names = names_of([target]), names_of([source])
        self.history.doing(f"forking {names[0]} from the first {counted(upto, 'token')} of {names[1]}")
        self.state.take_edits()
        in_use = self.pool.in_use
        try:
            self.pool.fork(source.slot, slot, upto)
        except UnsupportedError as error:
            self.history.steps.pop()
            self.history.cannot_judge(laws.FORK, str(error))
            return
        self._sessions += 1
        self._enter(target)
        self.table.computed[slot] = upto
        shared = self.state.cells[source.slot][:upto]
        hold = self.history.hold
        hold(laws.FORK, self.pool.in_use == in_use, f"in_use went from {in_use} to {self.pool.in_use}")
        self.state.take_edits()
        told = self.state.cells.get(slot, [])
        hold(laws.FORK, told == shared, f"take_edits told cells {told} of {names[0]}; {shared} are shared")
        hold(laws.FORK, not self.pool.take_edits(), "take_edits told them twice")
        self.state.look()

    def _bulk(self, steps: int) -> None:
        decoding = tuple(one for one in self.alive if self._decodes(one))
        pool: Any = self.pool
        if not isinstance(self.pool, Lasting):
            self.history.cannot_judge(laws.BULK, "it has no reserve_steps, and is stepped")
            return
        if not decoding:
            return
        plan = StepPlan(decodes=decoding)
        most = min(one.limit - one.length for one in decoding)
        steps = min(steps, most, pool.lasting(plan))
        if steps < 1:
            return
        self.history.doing(f"decoding {names_of(decoding)} {steps} times")
        before, resizes = [one.computed for one in decoding], len(pool.resizes)
        pool.reserve_steps(plan, steps)
        bulk = pool.in_use, pool.most_in_use, pool.room
        self.state.most = max(self.state.most, pool.in_use)
        for one, computed in zip(decoding, before, strict=True):
            pool.rewind(one.slot, computed)
        for _ in range(steps):
            parts = [_Part(one, 1, decode=True) for one in decoding]
            if not self._reserve(parts, laws.BULK, told=False):
                return
        single = pool.in_use, pool.most_in_use, pool.room
        self.history.hold(
            laws.BULK,
            bulk == single and len(pool.resizes) == resizes,
            f"(in_use, most_in_use, room) are {bulk} at once and {single} step by step",
        )

    # -- a reservation --------------------------------------------------------------------------------

    def _reserve(
        self, parts: list[_Part], never_full: Any = None, undone: bool = False, told: bool = True
    ) -> bool:
        """Reserve one plan; False when it was refused. With `never_full` being refused breaks that law."""
        pool, state, hold = self.pool, self.state, self.history.hold
        if told:
            self.history.doing(_words(parts))
        if sharing_of(pool) is None:
            self.history.cannot_judge(laws.SHARING, "it shares no prefixes")
        quoted = sum(pool.quote(part.sequence) for part in parts)
        decodes_only = all(part.decode for part in parts)
        room, before = pool.room, state.facts()
        fits = quoted <= room and not self._shared
        decodes_fit = decodes_only and len(parts) * pool.decode_cells <= room and not self._shared
        for part in parts:
            if part.new:
                self._enter(part.sequence)
                self._adopt(part)
        plan = StepPlan(
            tuple(part.sequence for part in parts if part.decode),
            tuple(Slice(part.sequence, part.count) for part in parts if not part.decode),
        )
        seen = _seen(plan, self.table)
        failures = self.rows.failures
        try:
            given = pool.reserve(plan)
        except (PoolFull, OutOfMemory) as refused:
            if told:
                self.history.gave(f"refused, {refused}")
            hold(laws.PLAN, _seen(plan, self.table) == seen, "the refused plan or its sequences changed")
            for part in parts:
                if part.new:
                    self.alive.remove(part.sequence)
                    slot = part.sequence.leave()
                    pool.release(slot)
                    self.state.leave(slot)
            memory = self.rows.failures > failures
            state.refused(before, refused, memory)
            if not memory:
                known = f"it was refused with a room of {room}: {refused}"
                hold(laws.QUOTE, not fits, f"quotes of {quoted} fit, and {known}")
                hold(laws.DECODES, not decodes_fit, f"{len(parts)} x decode_cells fit, and {known}")
                if never_full:
                    hold(never_full, False, known)
            return False
        if fits:
            hold(laws.QUOTE, True, "")
        if decodes_fit:
            hold(laws.DECODES, True, "")
        if never_full:
            hold(never_full, True, "")
        hold(laws.PLAN, _seen(plan, self.table) == seen, "the plan or its sequences changed")
        state.given(plan, given, told)
        for part in parts:
            if part.adopted:
                row = state.cells[part.sequence.slot]
                name, has = names_of([part.sequence]), len(row) - part.count
                fault = f"{name} adopted {part.adopted} tokens, and take_edits told {has} cells"
                hold(laws.SHARING, has == part.adopted, fault)
        for part in parts:
            self.table.computed[part.sequence.slot] += part.count
        if undone:
            self._undo(parts)
        else:
            for part in parts:
                self._next_token(part.sequence)
        state.look()
        return True

    def _adopt(self, part: _Part) -> None:
        """What a pool that shares has of a new sequence is not computed again; its last token always is."""
        sharing = sharing_of(self.pool)
        if sharing is None:
            return
        sequence, most = part.sequence, part.sequence.length - 1
        count = sharing.adopt(sequence, most)
        self.history.hold(laws.SHARING, 0 <= count <= most, f"it adopted {count} tokens of at most {most}")
        self.table.adopt(sequence.slot, count)
        part.count = min(part.count, sequence.remaining)
        part.adopted = count

    def _undo(self, parts: list[_Part]) -> None:
        """As the engine does when a launch fails."""
        self.history.doing("taking that step back")
        for part in parts:
            slot = part.sequence.slot
            computed = int(self.table.computed[slot]) - part.count
            self.table.computed[slot] = computed
            self.pool.rewind(slot, computed)
            self.state.keep(slot, computed)
        for part in parts:
            if part.new:
                self._let_go(part.sequence)

    def _let_go(self, sequence: Sequence) -> None:
        self.alive.remove(sequence)
        slot = sequence.leave()
        self.pool.release(slot)
        self.state.leave(slot)

    def _enter(self, sequence: Sequence) -> None:
        sequence.enter(self._slot())
        self.alive.append(sequence)
        self.state.enter(sequence)

    # -- sequences ------------------------------------------------------------------------------------

    def _name(self) -> str:
        number, letter = divmod(self._sessions, len(ascii_uppercase))
        return ascii_uppercase[letter] + (str(number) if number else "")

    def _slot(self) -> int:
        taken = {sequence.slot for sequence in self.alive}
        return next((slot for slot in range(1, self.bounds.max_sessions + 1) if slot not in taken), 0)

    def _opened(self, tokens: int, prompt: int, slice: int) -> _Part | None:
        """A new sequence and its first slice; None where it could not run even alone."""
        prompt_ids = [100 * prompt + place for place in range(tokens)]
        most, why = self.bounds.max_context, None
        for new in (min(MOST_NEW, most - tokens + 1), 1):
            request = Request(self._name(), prompt_ids, new)
            why = self.pool.refusal(request.cells_needed)
            if not why:
                break
            named = any(number in why for number in (str(request.cells_needed), f"{request.cells_needed:,}"))
            self.history.hold(laws.LAST_CELL, named, f"its refusal does not name the cells asked for: {why}")
        if why:
            return None
        self._sessions += 1
        return _Part(Sequence(self._sessions - 1, request, self.table), min(tokens, slice), new=True)

    def _decodes(self, sequence: Sequence) -> bool:
        return sequence.remaining == 1 and sequence.generated > 0 and sequence.length < sequence.limit

    def _next_token(self, sequence: Sequence) -> None:
        """A sequence that is computed to its end gets a token, while it may."""
        if sequence.remaining == 0 and sequence.length < sequence.limit:
            self.table.tokens[sequence.slot, sequence.length] = (7 * sequence.length + 3) % 97
            self.table.length[sequence.slot] += 1


def _left(sequence: Sequence) -> int:
    """Tokens it has to compute: the last one that it may make needs no cell."""
    return min(sequence.length, sequence.request.cells_needed) - sequence.computed


def _words(parts: list[_Part]) -> str:
    """ "opening A with 3 tokens and decoding B"."""
    said = []
    if decoding := [part.sequence for part in parts if part.decode]:
        said.append(f"decoding {names_of(decoding)}")
    for part in parts:
        name = names_of([part.sequence])
        if part.new:
            whole = part.sequence.prompt_tokens
            some = f" of {whole}" if part.count < whole else ""
            said.append(f"opening {name} with {counted(part.count, 'token')}{some}")
        elif not part.decode:
            said.append(f"computing {counted(part.count, 'more token')} of {name}")
    return listed(said)


def _seen(plan: StepPlan, table: SequenceTable) -> Any:
    """All that a reservation must leave alone."""
    columns = (table.computed, table.length, table.limit)
    slices = [(piece.sequence.session, piece.count) for piece in plan.prefills]
    phases = [(one.session, one.slot, one.phase) for one in plan.sequences()]
    decodes = [one.session for one in plan.decodes]
    return decodes, slices, phases, [np.asarray(column).tolist() for column in columns]
