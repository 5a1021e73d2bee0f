"""What if the cards had less memory, or the cluster more GPUs?"""

from planner import whatif

question = {
    "model": "llama-3.2-1b",
    "cluster": {"name": "4xrtx-4090", "gpus": 4},
    "training": {"global_batch": 32, "sequence": 2048, "framework": "torchtitan"},
    "search": {"cp": 1},
}

# Every amount of memory at which the best plan changes: a step function, each step proven best.
sweep = whatif(question, memory="sweep")
steps = sweep.to_dataframe()
print(f"nothing fits below {steps.memory_bytes.min() / 2**30:.1f} GiB")
print("more memory is never slower:", steps.iteration_s.is_monotonic_decreasing)
print("every step is proven best:", bool((steps.gap < 1e-3).all()))

# How far does it scale, and where does each doubling stop paying?
scaling = whatif(question, gpus=[1, 2, 4]).to_dataframe()
print(scaling[["gpus", "dp", "tp", "pp"]].to_string(index=False))

# Any key of a scenario can be varied; several make a grid.
for row in whatif(
    question, vary={"sequence": [2048, 4096], "memory": ["16GiB", "20GiB"]}
).to_rows():
    print(
        row["label"],
        "->",
        f"dp{row['dp']} tp{row['tp']} pp{row['pp']}" if "dp" in row else "no plan",
    )
