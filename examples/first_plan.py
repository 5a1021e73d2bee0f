"""A first plan: which strategy trains Llama-3.1-8B fastest on one DGX H100, and how sure is that?"""

from planner import plan, simulate

question = {
    "model": "llama-3.1-8b",
    "cluster": {"name": "dgx-h100", "gpus": 8},
    "training": {"global_batch": 64, "sequence": 4096, "framework": "megatron"},
}

ranking = plan(question, top=3)
best = ranking.best
print(f"status: {ranking.result.status}, gap at most {ranking.result.gap:.1%}")
print(f"best: {best.strategy.label()}, micro-batch {best.strategy.micro_batch}")
print(f"fits: {best.fits}, memory used: {best.peak_memory_bytes / best.memory_limit_bytes:.0%}")
print(f"likely {best.iteration_s_low:.1f} to {best.iteration_s_high:.1f} s an iteration")

# The same as a table, for a notebook or a spreadsheet.
table = ranking.to_dataframe()
print(table[["tp", "pp", "cp", "dp", "micro_batch", "zero"]].to_string())

# Someone proposed another strategy: is it legal, does it fit, how much slower is it?
other = simulate(question, strategy={"tp": 8, "micro_batch": 1})
print(f"tp8: {other.plan.iteration_s / best.iteration_s:.2f} times the best plan's time")
