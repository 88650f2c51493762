"""Programs for developers: benchmarks, faults, fuzzing, mutation, soaks, tour of the console."""
