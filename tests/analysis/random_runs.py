"""Random runs with times on a grid."""

import random
from typing import Any

#: Interval (s) of the grid.
GRID = 0.25


def stages(key: str, sent: float, *lengths: float, **more: Any) -> dict[str, Any]:
    """Return a task run with these durations until it is received, ready, executing, ..."""
    names = ("received", "ready", "executing", "start", "stop", "done", "known")
    run: dict[str, Any] = {"key": key, "sent": sent, "scheduler_waiting": sent, "cpu": 0.0}
    at = sent
    for name, length in zip(names, lengths, strict=True):
        at += length
        run[name] = at
    return {**run, "duration": run.pop("stop") - run["start"], **more}


def random_run(seed: int) -> dict[str, Any]:
    """Return a run on one or two workers, whose times are on the grid."""
    rng = random.Random(seed)

    def some(most: int) -> float:
        return rng.choice([0, rng.randint(0, most)]) * GRID

    lives = []
    for _ in range(rng.randint(1, 3)):
        life = {"nthreads": rng.randint(1, 3), "first_seen": some(8), "last_seen": 20 + some(40)}
        life |= {"joined": some(20)} if rng.random() < 0.5 else {}
        life |= {"left": life["last_seen"] - some(20)} if rng.random() < 0.5 else {}
        lives.append({**life, "boot_id": "scheduler's"})
    tasks = []
    for number in range(rng.randint(0, 12)):
        arrival = some(40)
        lengths = [some(8) for _ in range(9)]
        runnable = arrival + lengths[0]
        queued = {"queued": runnable} if rng.random() < 0.5 else {}
        run = stages(f"f-{number}", runnable + (lengths[1] if queued else 0), *lengths[2:])
        run |= {"scheduler_waiting": arrival, "worker_id": rng.randrange(len(lives)), **queued}
        if rng.random() < 0.2:
            run["seceded"] = run["start"] + some(8)
        if rng.random() < 0.2:
            run["stolen"] = run["sent"] + min(some(8), run["received"] - run["sent"])
        tasks.append(run)
    samples = [
        {"worker_id": worker, "time": some(80), "state": rng.choice(["running", "paused"])}
        for worker in range(len(lives))
        for _ in range(rng.choice([0, 4]))
    ]
    taken = [{"key": "g-1", "worker_id": 0, "scheduler_waiting": 8.0, "sent": 9.0}]
    taken[0]["known"] = 9.0 + some(20)
    taken *= rng.randint(0, 1)
    calls = [
        {"worker_id": rng.randrange(len(lives)), "start": some(80), "duration": some(8)}
        for _ in range(rng.choice([0, 0, 3]))
    ]
    made = {"tasks": tasks, "workers": lives, "samples": samples, "scheduler_only": taken}
    return {**made, "actor_calls": calls}
