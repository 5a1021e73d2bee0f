"""Cases of people who do this job, as tests with their ids."""
