"""Answers to the exercises of 02_matmul_gpu that look plausible and are wrong."""


def traffic(m, n, k, rows, columns):
    return 4 * (m * k * n / columns + k * n * m / rows)  # parts of tiles


check_traffic(traffic)


def wavefronts(words):
    return max(Counter(word % 32 for word in words).values())  # lanes with the same word not served together


check_wavefronts(wavefronts)


def place(row, column):
    return 32 * row + column  # no shift: a column lies in one bank


check_place(place)


def has_race(events):
    words = [event[2] for event in events if event[0] == "write"]
    return len(words) != len(set(words))  # two writes, whoever wrote and whatever stands between


check_has_race(has_race)
