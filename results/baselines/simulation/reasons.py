"""Why a prediction misses by more than 30 %: what the source says, and what was worked out from it."""

from __future__ import annotations

from rows import Compared

LIMIT = 0.3

BY_ROW = {
    "m199": "the profile's launch cost is that of transformers' model code beside an H200: 25 us for each of "
    "1,143 operations. The source is a secondary one and names neither its model code nor its host; without "
    "launches the same source is met within 30 % (m200)",
    "m100": "the table heads the A100 column 'out tok/s' and the H100 column 'out tok/s/GPU'; read as the "
    "H100's, for each of two devices, the row is 1,564 tok/s and the prediction 5 % below it",
    "m192": "the source's own sweep: 46.9 ms at 64 sequences after 10.9 at 16, and less throughput; the "
    "table says of it 'oddly slow, do not fit to it'",
    "m191": "prompts' lengths are not printed, so that the prefills of the other 15 sequences, which fall "
    "between two tokens, are not in the prediction; it is the decode alone",
    "m202": "16-bit weights of 44 GB a device are read in 21.5 ms at the datasheet's bandwidth; the source "
    "took 66 ms with graphs, three times that. It says 'max_seq_len 2048' and nothing else of its kernels",
}

WITHOUT_LOCKSTEP = (
    "first token: the form is waves in lockstep, where a prompt waits for all others of its wave; these "
    "requests 'stop early' at lengths that are not given, and do not start together"
)
NIM = (
    "the form starts all requests at once; the source's ran long enough to spread, so that prefills fall "
    "between tokens: more TPOT and less TTFT than predicted, while their sum, throughput, agrees better. "
    "Above 50 sequences its memory is full ('KV capacity bound'), which is not in the form: they wait"
)
CELL_DTYPE = (
    "the table does not say how cells are held, and 16 bits are assumed; 8 bits would let twice as many "
    "sequences run and take the ten rows of Llama-3.1-8B from a median of 32 % to one of 9 %"
)
FOUR_BITS = (
    "the share of its rate that a product reaches was measured on products of 16 bits, and is taken to hold "
    "at four times that rate"
)
INTEGERS = (
    "prefill: the profile multiplies at the rate of 16 bits after unpacking; what was measured is 35 TFLOP/s "
    "for Qwen2.5-7B, of 125 (16 bits) or 250 (8 bits)"
)
ROUTING = (
    "experts: even choice would have 32 sequences read 27.6 GB a step, 101 ms at the datasheet's bandwidth; "
    "what was measured is 91 ms, so that these sequences share more of their experts"
)


def reason(compared: Compared) -> str:
    """One sentence, or nothing where no figure is off by more than the limit."""
    misses = {name for name, measured, predicted in compared.figures if abs(predicted / measured - 1) > LIMIT}
    row = compared.row
    if not misses:
        return ""
    if row["id"] in BY_ROW:
        return BY_ROW[row["id"]]
    if row["engine"] == "NVIDIA NIM":
        return NIM
    if row["engine"] == "llama.cpp":
        return "; ".join([INTEGERS] * ("prefill_tok_s" in misses) + [ROUTING] * ("decode_tok_s" in misses))
    if row["mode"].startswith("offline max load"):
        return FOUR_BITS if (compared.error or 0.0) > 0 else CELL_DTYPE
    if "outputs stop early" in row["notes"]:
        return WITHOUT_LOCKSTEP
    raise LookupError(f"row {row['id']} misses by more than {LIMIT:.0%} and nobody has said why")
