"""Many scenarios in one run: tasks, the journal they resume from, the machines they run on, the table."""
