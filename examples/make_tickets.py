"""Writes examples/tickets/{train,heldout}.jsonl: support messages and the routing line a help desk wants for each.

The messages are composed from phrases written for this project; the phrases of the held-out rows appear in no train
row, so that a good score shows a rule learnt and not sentences remembered. The same seed gives the same files.

    python examples/make_tickets.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

SYSTEM = (
    "Route the message. Answer with one line and nothing else: "
    "team=billing|shipping|repairs|accounts product=NAME order=NUMBER urgency=high|low"
)
SEED = 7
N_TRAIN, N_HELDOUT = 320, 40
FOLDER = Path(__file__).resolve().parent / "tickets"

# team -> (phrases for training, phrases held out); {p} is a product
COMPLAINTS: dict[str, tuple[list[str], list[str]]] = {
    "billing": (
        [
            "I was charged twice for the {p}",
            "the invoice for my {p} shows the wrong amount",
            "my refund for the {p} has not arrived",
            "you billed my old card for the {p}",
            "the discount code was not applied to my {p}",
            "there is a fee on my statement that I do not recognise, next to the {p}",
            "I need a corrected receipt for the {p} with our tax number",
            "the price I paid for the {p} is not the price on your page",
            "my payment for the {p} is still pending",
        ],
        ["I see two payments for one {p}", "please send the receipt for the {p} again, the amount is wrong"],
    ),
    "shipping": (
        [
            "my {p} has not been delivered",
            "the tracking page for the {p} has not moved for a week",
            "the courier left the {p} at the wrong address",
            "I would like the {p} sent to my office instead",
            "the parcel with the {p} arrived open and half empty",
            "when will the {p} be dispatched",
            "the {p} was returned to you by the carrier",
            "customs is holding the {p} and asks for papers",
            "only one of the two boxes with the {p} came",
        ],
        ["the driver never came with the {p}", "the parcel with my {p} is lost, the tracking says delivered"],
    ),
    "repairs": (
        [
            "the {p} does not switch on any more",
            "the screen of the {p} flickers",
            "the {p} makes a grinding noise",
            "a hinge on the {p} broke",
            "the battery of the {p} gets very hot",
            "the {p} stops after ten minutes",
            "water is leaking from the {p}",
            "the buttons on the {p} no longer react",
            "the {p} smells of burning when I use it",
        ],
        ["the {p} is broken and will not start", "there is smoke coming out of the {p}"],
    ),
    "accounts": (
        [
            "I cannot log in to register my {p}",
            "the password mail for the {p} portal never comes",
            "please change the email address on my {p} account",
            "my {p} account was locked after three tries",
            "I want to delete the profile I made for the {p}",
            "the two-factor code for the {p} app is always rejected",
            "someone else seems to be using my {p} login",
            "how do I add a colleague to our {p} account",
            "the {p} app signs me out every hour",
        ],
        ["I forgot the password for the {p} account", "the login page of the {p} app says my user does not exist"],
    ),
}
PRODUCTS = ["kettle", "blender", "printer", "headset", "vacuum", "monitor", "router", "camera", "heater", "scooter"]
URGENT = ["This is urgent.", "I need this solved today!", "Please act at once.", "It cannot wait.", "Urgent, please."]
CALM = ["No hurry.", "Whenever you have time.", "It is not pressing.", "Take your time.", "Thanks in advance."]
GREETINGS = ["Hello,", "Hi,", "Good morning,", "Dear team,", "Hi there,", ""]
ORDER_FORMS = ["Order {n}.", "My order number is {n}.", "(order {n})", "It is about order {n}.", "Ref {n}."]


def make_row(rng: random.Random, team: str, phrase: str) -> dict[str, list[dict[str, str]]]:
    product, order, is_urgent = rng.choice(PRODUCTS), rng.randint(10000, 99999), rng.random() < 0.5
    sentence = phrase.format(p=product)
    parts = [rng.choice(ORDER_FORMS).format(n=order), rng.choice(URGENT if is_urgent else CALM)]
    rng.shuffle(parts)
    message = " ".join(filter(None, [rng.choice(GREETINGS), sentence + ".", *parts]))
    urgency = "high" if is_urgent else "low"
    answer = f"team={team} product={product} order={order} urgency={urgency}"
    turns = {"system": SYSTEM, "user": message, "assistant": answer}
    return {"messages": [{"role": role, "content": content} for role, content in turns.items()]}


def make_rows(rng: random.Random, n: int, which: int, taken: set[str]) -> list[dict[str, list[dict[str, str]]]]:
    rows = []
    teams = list(COMPLAINTS)
    while len(rows) < n:
        team = teams[len(rows) % len(teams)]
        row = make_row(rng, team, rng.choice(COMPLAINTS[team][which]))
        message = row["messages"][1]["content"]
        if message not in taken:
            taken.add(message)
            rows.append(row)
    rng.shuffle(rows)
    return rows


def main() -> None:
    rng = random.Random(SEED)
    taken: set[str] = set()
    FOLDER.mkdir(exist_ok=True)
    for name, n, which in (("train", N_TRAIN, 0), ("heldout", N_HELDOUT, 1)):
        rows = make_rows(rng, n, which, taken)
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
