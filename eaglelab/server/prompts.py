"""Prompts for measuring: varied on purpose, since acceptance depends on what is written.

Random or repeated text gives absurd accept lengths, so every request of a measurement has another of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PROMPTS", "as_request", "prompt"]

PROMPTS = (
    "Explain to a new colleague how a hash table works, with its worst case and what to do about it.",
    "Write a Python function that merges overlapping intervals, then three tests for it.",
    "A train leaves at 9:40 and covers 231 km in 2 h 45 min. Work out its mean speed step by step.",
    "Tell the story of a lighthouse keeper who finds a letter addressed to the sea.",
    "Compare TCP and QUIC for a service whose clients change networks often. Use a table, then a conclusion.",
    "Summarise the causes of the French Revolution for a reader who knows nothing of it.",
    "Draft a polite e-mail that declines a meeting and offers two other times.",
    "Translate into French and explain the grammar: 'Had I known, I would have stayed at home.'",
    "List the steps to diagnose why a database query became slow overnight, most likely causes first.",
    "Describe how photosynthesis turns light into sugar, down to what happens in photosystem II.",
    "Write a SQL query for the three best customers of each month, and explain every clause.",
    "Argue for and against a four-day working week, each side in its strongest form.",
    "Fix this function and say what was wrong: def mean(xs): total = 0; for x in xs: total =+ x; return total / len(x)",
    "Erkläre einem Zehnjährigen, warum der Himmel blau ist und der Sonnenuntergang rot, mit einem Versuch für zu Hause.",
    "My sister and I have not spoken since our father's funeral. Help me write the first message to her.",
    "A jar holds 5 red, 7 blue and 8 green balls; two are drawn at once. Find the chance that they differ in colour, and check it another way.",
    "Implement an LRU cache in Rust with get and put in constant time. Comment on ownership where it is not obvious.",
    "Summarise in three sentences: The council met on Tuesday to discuss the bridge. Engineers reported that two of its nine piers had sunk by 4 cm since spring, more than in the twenty years before. Repair would take fourteen months and close one lane; a new bridge would cost six times as much and take five years. Shop owners on the east bank feared for their trade, the fire brigade for its way to the hospital. A vote was put off until the river authority has measured the flow in winter.",
    "Escribe una carta de reclamación a una compañía aérea por un vuelo cancelado: educada, firme y con los datos necesarios.",
    "Turn this into JSON with typed fields: Order 4411 of 3 May, Ms Ito, two lamps at 39.90 and one rug at 120, paid by card, to be delivered after the 12th.",
    "Write a sonnet about the last tram of the night, in iambic pentameter.",
    "Three friends split a bill of 84.60 so that Ana pays twice what Ben pays and Cy pays 6 more than Ben. Show the equations.",
    "Explain the borrow of a two's-complement subtraction by hand for 0x3A - 0x5C in eight bits.",
    "请用简单的语言解释什么是通货膨胀,并举一个日常生活中的例子。",
    "Write a bash script that renames all photos of a folder by the date they were taken, with a dry run as its default.",
    "You are a patient tutor. A student says that 0.1 + 0.2 = 0.3 is false in Python and concludes that computers cannot add. Answer.",
    "Review this plan as a sceptical engineer: we move all services to one database so that joins become easier.",
    "Résume l'intrigue de Roméo et Juliette en dix phrases, puis dis en quoi le hasard décide de la fin.",
    "Give a recipe for lentil soup for eight people, with a shopping list grouped by shop aisle and the order of steps.",
    "Write unit tests with pytest for a function parse_duration that reads '1h30m', '45s' and '2d', and refuses all else.",
    "If all bloops are razzies and some razzies are lazzies, must some bloops be lazzies? Reason step by step, then give a counterexample.",
    "日本の電車で忘れ物をしました。駅員に電話で説明する会話文を、丁寧な言葉で書いてください。",
    "Rewrite for a general reader: The patient presented with acute dyspnoea and bilateral pitting oedema; auscultation revealed crepitations at both bases.",
    "Describe the life of a packet from a browser on home wifi to a web server, one paragraph a layer.",
    "Write a React component for a table that sorts by any column and pages by twenty rows, without a library.",
    "Plan a weekend in Lisbon for two people who dislike museums and love food, with times and ways on foot.",
    "Extract every date and what happened on it: On 2 March the valve was ordered; it came on the 19th, was fitted two days later and failed its test on 1 April.",
    "Напиши короткий рассказ о том, как старый часовщик чинит часы, которые идут назад.",  # noqa: RUF001 - Russian
    "Derive the closed form of 1 + 2 + ... + n twice, by pairing and by induction, and say which proof shows more.",
    "Write a product announcement of 150 words for a quiet coffee grinder, without superlatives.",
)


def prompt(number: int) -> str:
    """Prompt `number` of an endless series: the set again and again, each round told apart by its count.

    The count keeps a prefix cache from answering a later round for free.
    """
    round_number, index = divmod(number, len(PROMPTS))
    return f"({round_number + 1}) {PROMPTS[index]}" if round_number else PROMPTS[index]


def as_request(text: str, server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a `/generate` body that carries a prompt, as this server takes it.

    A server without a tokenizer (`--skip-tokenizer-init`) takes ids only: each byte of the text then stands for one,
    away from the low ids that models reserve.
    """
    if server_info.get("skip_tokenizer_init"):
        return {"input_ids": [byte + 16 for byte in text.encode()]}
    return {"text": text}
