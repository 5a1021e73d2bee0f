"""Tables of terms give the values of single terms to the last bit."""

import random

from costmodel.linear import ChunkContent, StageTerm, term
from costmodel.term_table import Contents, term_values


def random_term(rng: random.Random, kinds: int) -> StageTerm:
    scalars = ("fixed", "first", "last", "flight_fixed", "flight_first", "flight_last")
    vectors = ("layer", "recomputed", "flight_layer", "flight_recomputed")
    return term(
        "x",
        kinds,
        **{name: rng.choice((0.0, rng.uniform(-1, 1))) for name in scalars},
        **{name: tuple(rng.uniform(-1, 1) for _ in range(kinds)) for name in vectors},
        recompute_once=rng.choice((0.0, rng.random())),
    )


def random_chunk(rng: random.Random, kinds: int) -> ChunkContent:
    layers = tuple(rng.randint(0, 9) for _ in range(kinds))
    recomputes = rng.random() < 0.5
    return ChunkContent(
        layers=layers,
        recomputed=tuple(rng.randint(0, count) * recomputes for count in layers),
        first=rng.random() < 0.3,
        last=rng.random() < 0.3,
        in_flight=rng.randint(0, 9),
    )


def test_all_terms_of_all_ranks_have_the_values_of_each() -> None:
    rng = random.Random(4)
    for _ in range(40):
        kinds, chunks = rng.randint(1, 2), rng.randint(1, 4)
        ranks = [
            [random_chunk(rng, kinds) for _ in range(chunks)] for _ in range(rng.randint(1, 6))
        ]
        terms = [random_term(rng, kinds) for _ in range(5)]
        contents = Contents.of(ranks)
        expected = [[item.value(rank) for rank in ranks] for item in terms]
        assert term_values(terms, contents).tolist() == expected
        alone = [[item.value((chunk,)) for rank in ranks for chunk in rank] for item in terms]
        assert term_values(terms, contents.apart()).tolist() == alone


def test_no_terms_have_no_values() -> None:
    contents = Contents.of([[random_chunk(random.Random(1), 1)]])
    assert term_values([], contents).shape == (0, 1)
