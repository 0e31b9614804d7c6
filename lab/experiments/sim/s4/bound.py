#!/usr/bin/env python3
"""What S4 lets any control have, and what SIM's rules have with ideal feedback: a fluid model of sim.md's sections 5 and 6.

    bound.py

Groups are fluid, links have no queue, and a link that carries more than it can congests those whose top group is the top one on it, at once: a request
takes 80 ms, 2 RTTmax. Nothing here knows of packets or of queues, so that the difference to the simulator is what those cost. Phases of migrations
begin at ten different times; the mean is shown.
"""

import itertools

RECEIVERS = range(15, 31)
GROUPS, INTERVAL, MENU, HOLD_OFF, DECREASE, REQUEST = 3, 10, 25, 2, 0.875, 0.08
# In Mbit/s: a packet of 1000 bytes per request, and what a group grows by.
PACKET = 8e-3 / REQUEST
STEP = 0.4 * PACKET
# Requests after a report of congestion in which a fall is the answer to that, and after a leave in which no congestion is told of.
OWN, RELIEF = 4, 2
PERIODS = (1, 3, 10, 30, 100, 300, 1000, 3000)


def main():
    for phase in (0, 1):
        have = available(capacities(phase))
        print(f"three rates at best, phase {phase}: {best(list(have.values())):.3f}")
    steady = [run(lambda _, phase=phase: phase)[0] for phase in (0, 1)]
    print(f"nothing migrates: {steady[0]:.3f}, {steady[1]:.3f}")
    for p in PERIODS:
        period = 0.04 * p
        runs = [run(lambda t, ahead=2 * period * start / 10: int((t + ahead) / period) % 2) for start in range(10)]
        efficiency, changes = (sum(values) / len(runs) for values in zip(*runs))
        print(f"    p {p}: {efficiency:.3f}, {changes:.0f} changes", flush=True)


def path(receiver):
    return [receiver] + (path((receiver - 1) // 2) if receiver > 2 else [])


PATHS = {receiver: path(receiver)[::-1] for receiver in RECEIVERS}


def capacities(phase):
    narrow = {2: 1.0, 4: 5.0} if phase == 0 else {}
    return {**dict.fromkeys(range(1, 31), 9.0), 5: 3.0, 9: 7.0, **narrow}


def available(links):
    return {receiver: min(links[link] for link in way) for receiver, way in PATHS.items()}


def best(have):
    """The largest mean of what receivers get over what they could, by any three cumulative rates: some of the capacities."""
    choices = itertools.combinations_with_replacement(sorted(set(have)), GROUPS)
    return max(sum(max([rate for rate in rates if rate <= one], default=0) / one for one in have) / len(have) for rates in choices)


class Interval:
    """A selection interval of a receiver."""

    def __init__(self, calm=99):
        self.reports = self.congested = 0
        self.calm, self.first, self.latest = calm, None, None
        self.fell = self.yielded = False

    def report(self, is_congested, rate):
        self.reports += 1
        self.congested += is_congested
        self.calm = 0 if is_congested else self.calm + 1
        if self.latest is not None and rate <= self.latest * (1 + DECREASE) / 2:
            self.fell, self.yielded = True, self.yielded or self.calm > OWN
        self.first, self.latest = rate if self.first is None else self.first, rate

    def choice(self, step):
        rose = self.latest - self.first
        if 5 * self.congested <= self.reports and (self.yielded or rose < step and not self.fell):
            return 1
        return -1 if 2 * self.congested > self.reports and rose > -step and not self.fell else 0


def run(phase_at, step=STEP, seconds=300.0, warm_up=60.0):
    """Mean efficiency, and changes of subscriptions."""
    rates, held, silent = [0.1] * GROUPS, [0] * GROUPS, [0] * GROUPS
    opened, bound, last, since = [True] + [False] * (GROUPS - 1), None, [], 0
    top = dict.fromkeys(RECEIVERS, 0)
    intervals = {receiver: Interval() for receiver in RECEIVERS}
    seconds_of, changes, relief = {}, 0, dict.fromkeys(RECEIVERS, 0)
    for number in range(int(seconds / REQUEST)):
        links = capacities(phase_at(number * REQUEST))
        have, was = available(links), dict(top)
        carried = {link: max((was[receiver] for receiver, way in PATHS.items() if link in way)) for link in links}
        received, congested = {}, {}
        for receiver, way in PATHS.items():
            left = 1.0
            for link in way:
                left *= min(1.0, links[link] / (rates[carried[link]] * left))
            received[receiver] = min(rates[was[receiver]] * left, have[receiver])
            marks = any(rates[carried[link]] > links[link] and carried[link] == was[receiver] for link in way)
            congested[receiver] = marks or left < 0.999
        is_judged = number * REQUEST >= warm_up
        if is_judged:
            # As verdict.py: received over the capacity of the time, by seconds.
            second = seconds_of.setdefault(int(number * REQUEST), {one: [0.0, 0.0] for one in RECEIVERS})
            for one in RECEIVERS:
                second[one][0] += received[one]
                second[one][1] += have[one]
        muted = {receiver: left > 0 for receiver, left in relief.items()}
        relief = {receiver: max(0, left - 1) for receiver, left in relief.items()}
        for receiver, interval in intervals.items():
            interval.report(congested[receiver], rates[was[receiver]])
            if interval.reports == INTERVAL:
                top[receiver] = min(max(was[receiver] + interval.choice(step), 0), GROUPS - 1)
                changes += is_judged and top[receiver] != was[receiver]
                relief[receiver] = RELIEF if top[receiver] < was[receiver] else relief[receiver]
                intervals[receiver] = Interval(interval.calm)
        last = [*last, (min(received.values()), max(received.values()))][-MENU:]
        is_top_congested, fell = False, [False] * GROUPS
        for rank in range(GROUPS):
            members = [congested[one] and not muted[one] for one in RECEIVERS if was[one] == rank]
            below = rates[rank - 1] if rank else 0.0
            silent[rank] = 0 if members else silent[rank] + 1
            if not members:
                held[rank] = max(0, held[rank] - 1)
                if silent[rank] > 3 and rank:
                    opened[rank], rates[rank] = False, below
                continue
            if rank == GROUPS - 1:
                is_congested = is_top_congested = all(members)
            else:
                is_congested = 2 * sum(members) > len(members) if rank and bound else any(members)
            if not opened[rank]:
                opened[rank], rates[rank], held[rank] = True, below + 0.1, 0
            elif held[rank]:
                held[rank] -= 1
            elif is_congested:
                rates[rank], held[rank], fell[rank] = rates[rank] * DECREASE, HOLD_OFF, True
            else:
                rates[rank] += step
        since += 1
        if is_top_congested and not bound or bound and since == MENU:
            # Of three groups the menu bounds the middle one, by the largest rate received.
            bound, since = sum(most for _, most in last) / len(last), 0
        # A middle group gives way to the one above as that falls, by a decrease at most.
        for rank in range(1, GROUPS - 1):
            least = max(rates[rank] * DECREASE, rates[rank + 1] - PACKET)
            if fell[rank + 1] and not fell[rank] and opened[rank] and least < rates[rank]:
                rates[rank], held[rank] = least, HOLD_OFF
        highest = max(rank for rank in range(GROUPS) if opened[rank])
        for rank in range(GROUPS):
            below = rates[rank - 1] if rank else 0.0
            least = below + (PACKET if opened[rank] and rank else 0.0)
            most = below if not opened[rank] else bound if bound and rank == 1 != highest else 1e9
            rates[rank] = max(min(rates[rank], most), least, 0.05)
    shares = [min(1.0, got / could) for second in seconds_of.values() for got, could in second.values()]
    return sum(shares) / len(shares), changes


if __name__ == "__main__":
    main()
