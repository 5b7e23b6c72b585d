# SPDX-License-Identifier: Apache-2.0
"""What served_steps.hpp is to the C++ programs: serves rounds of named steps to `compare`."""

import statistics
import sys
import time


def serve(makers):
    """makers: by name, what makes a step; each is called once, when its step is first asked for."""
    steps = {}
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    clock = time.perf_counter
    for line in sys.stdin:
        name, samples, calls = line.split()
        try:
            if name not in steps:
                steps[name] = makers[name]()
            step, taken = steps[name], []
            for _ in range(int(samples)):
                start = clock()
                for _ in range(int(calls)):
                    step()
                taken.append((clock() - start) / int(calls))
            print(statistics.median(taken) * 1e6, file=answers, flush=True)
        except Exception as error:  # an answer too: that figure is left out
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            print(f"error: {type(error).__name__}: {text}", file=answers, flush=True)
