# SPDX-License-Identifier: Apache-2.0
"""What served_steps.hpp is to the C++ programs: serves rounds of named steps to `compare`."""

import statistics
import sys
import time


def serve(makers):
    """makers: by name, what makes a step; each is called once, when its step is first asked for.

    A step is a function, or two: the second is called before each sample and not timed; a sample is then one call.
    """
    steps = {}
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print is no answer
    clock = time.perf_counter
    for line in sys.stdin:
        name, samples, calls = line.split()
        try:
            if name not in steps:
                steps[name] = makers[name]()
            step, before = steps[name] if isinstance(steps[name], tuple) else (steps[name], None)
            calls, taken = 1 if before else int(calls), []
            for _ in range(int(samples)):
                if before:
                    before()
                start = clock()
                for _ in range(calls):
                    step()
                taken.append((clock() - start) / calls)
            print(statistics.median(taken) * 1e6, file=answers, flush=True)
        except Exception as error:  # an answer too: that figure is left out
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            print(f"error: {type(error).__name__}: {text}", file=answers, flush=True)
