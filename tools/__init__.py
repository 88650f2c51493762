"""Programs for developers: benchmarks, faults, fuzzing, mutation, soaks, screenshots."""
