"""Nexmark's events, the same in every run: people, auctions and bids as JSON, in files.

    events.py DIRECTORY

Writes `DIRECTORY/events/N.json`, in the order in which they are to be read, and the side input of
q13, `DIRECTORY/side_input.csv`. Names of fields are the suite's; of 50 events one is a person,
three are auctions and 46 are bids, as there.

What the queries need to be told apart by their rows is in the events on purpose:

- no two events have the same time, so that "the newest row" is one row; they are written up to
  three seconds out of order, which a watermark four seconds behind does not call late;
- times cross midnight, a pause of hours, and eight o'clock; one event lies on every full ten
  seconds, where one window ends and another begins;
- some prices are the highest possible, so that a window has several highest bids; some lie where
  one rank of prices ends and the next begins;
- bids name auctions that come after them, that are over, or that never come;
- some URLs have no channel, an empty one, one in the wrong place, or too few directories.

The last events, one of each kind, are four days later: what they close is complete.
"""

import json
import random
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

SEED = 20260101
EVENTS = 20_000
FILES = 8
KINDS_PERIOD = 50
# Where a stretch of events begins; each has half of them.
STARTS = [
    datetime(2026, 1, 1, 23, 59, 0, tzinfo=timezone.utc),
    datetime(2026, 1, 2, 7, 59, 0, tzinfo=timezone.utc),
]
CLOSING = datetime(2026, 1, 6, tzinfo=timezone.utc)
BETWEEN_EVENTS_MS = 9
OUT_OF_ORDER_MS = 3_000
FULL_MS = 10_000
PRICE_MAX = 100_000_000
NOTABLE_PRICES = [PRICE_MAX, PRICE_MAX, 9_999, 10_000, 999_999, 1_000_000]
FIRST_ID = 1_000
SIDE_INPUT_KEYS = 10_000

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Kent", "Zürich"]
FIRST_NAMES = ["Peter", "Paul", "Luke", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Zoë"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "O'Hara", "Smith"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Generator:
    def __init__(self):
        self.random = random.Random(SEED)
        self.people, self.auctions = 0, 0

    def text(self, length):
        return "".join(self.random.choices(LETTERS, k=length))

    def price(self):
        if self.random.random() < 0.006:
            return self.random.choice(NOTABLE_PRICES)
        return round(100 * 10 ** (6 * self.random.random()))

    def of_the_last(self, made, last, ahead, hot_every, hot_share):
        """A number of something: mostly of a popular one, else of the last or one to come."""
        if self.random.random() < hot_share:
            return FIRST_ID + max(made - 1, 0) // hot_every * hot_every
        first = max(made - last, 0)
        return FIRST_ID + self.random.randrange(first, made + ahead)

    def person(self):
        self.people += 1
        name = f"{self.random.choice(FIRST_NAMES)} {self.random.choice(LAST_NAMES)}"
        return {
            "id": FIRST_ID + self.people - 1,
            "name": name,
            "emailAddress": f"{self.text(7)}@{self.text(5)}.com",
            "creditCard": " ".join(f"{self.random.randrange(10_000):04}" for _ in range(4)),
            "city": self.random.choice(CITIES),
            "state": self.random.choice(STATES),
            "extra": self.text(self.random.randrange(20)),
        }

    def auction(self, time):
        self.auctions += 1
        initial = self.price()
        return {
            "id": FIRST_ID + self.auctions - 1,
            "itemName": self.text(10),
            "description": self.text(20),
            "initialBid": initial,
            "reserve": initial + self.price(),
            "expires": written(time + timedelta(milliseconds=self.random.randrange(1, 20_000))),
            "seller": self.of_the_last(self.people, 20, 2, 10, 0.5),
            "category": self.random.randrange(10, 15),
            "extra": self.text(self.random.randrange(20)),
        }

    def bid(self, is_highest):
        channel = self.random.choice(HOT_CHANNELS)
        if self.random.random() < 0.5:
            channel = f"channel-{self.random.randrange(40)}"
        price = self.price()
        return {
            "auction": self.of_the_last(self.auctions, 60, 3, 20, 0.5),
            "bidder": self.of_the_last(self.people, 100, 3, 50, 0.3),
            "price": PRICE_MAX if is_highest else price,
            "channel": channel,
            "url": self.url(),
            "extra": self.text(self.random.randrange(10, 40)),
        }

    def url(self):
        directories = [self.text(self.random.randrange(1, 6)) for _ in range(3)]
        if self.random.random() < 0.02:
            return f"https://www.nexmark.com/{directories[0]}"
        number = self.random.randrange(1_000_000)
        queries = [
            "?query=1",
            "?query=1&channel_id=",
            f"?channel_id={number}",
            f"?query=1&channel_id={number}&page=2",
            f"?query=1&channel_id={number}",
        ]
        weights = [10, 2, 4, 10, 74]
        query = self.random.choices(queries, weights)[0]
        return f"https://www.nexmark.com/{'/'.join(directories)}/item.htm{query}"

    def event(self, number, time):
        event = {"event_type": 2, "dateTime": written(time)}
        place = number % KINDS_PERIOD
        is_full = milliseconds(time) % FULL_MS == 0
        if is_full or place > 3:
            event["bid"] = self.bid(is_full)
        elif place == 0:
            event.update(event_type=0, person=self.person())
        else:
            event.update(event_type=1, auction=self.auction(time))
        return event


def milliseconds(time):
    return round(time.timestamp() * 1_000)


def written(time):
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def times(generator):
    """All different, and growing: one in each slot, at a full time where the slot has one."""
    for start in STARTS:
        for number in range(EVENTS // len(STARTS)):
            slot = start + timedelta(milliseconds=number * BETWEEN_EVENTS_MS)
            to_full = -milliseconds(slot) % FULL_MS
            in_slot = generator.randrange(BETWEEN_EVENTS_MS)
            is_full = to_full < BETWEEN_EVENTS_MS
            yield slot + timedelta(milliseconds=to_full if is_full else in_slot)


def closing(generator):
    """One of each kind, that match nothing."""
    for number, place in enumerate([0, 1, 4]):
        event = generator.event(place, CLOSING + timedelta(milliseconds=number + 1))
        for kind, keys in {"person": ["id"], "auction": ["id", "seller"]}.items():
            if kind in event:
                event[kind].update({key: 900_000 + number for key in keys})
        if "bid" in event:
            event["bid"].update(auction=900_010, bidder=900_011)
        yield event


def main():
    directory = Path(sys.argv[1])
    generator = Generator()
    arriving = []
    for number, time in enumerate(times(generator.random)):
        event = generator.event(number, time)
        delay = timedelta(milliseconds=generator.random.randrange(OUT_OF_ORDER_MS))
        arriving.append((time + delay, number, event))
    arriving.sort(key=lambda arrival: arrival[:2])
    events = [event for _, _, event in arriving] + list(closing(generator))
    lines = [json.dumps(event, ensure_ascii=False) + "\n" for event in events]
    (directory / "events").mkdir(parents=True)
    size = -(-len(lines) // FILES)
    for file in range(FILES):
        path = directory / "events" / f"{file}.json"
        path.write_text("".join(lines[file * size : (file + 1) * size]), encoding="utf-8")
    side_input(directory / "side_input.csv")


def side_input(path):
    """Most keys that an auction's number can have, each with a value; every seventh is missing."""
    keys = (key for key in range(SIDE_INPUT_KEYS) if key % 7)
    path.write_text("".join(f"{key},value {key * key % 977}\n" for key in keys), encoding="utf-8")


if __name__ == "__main__":
    main()
