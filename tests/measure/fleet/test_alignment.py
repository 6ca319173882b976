from tokenwatt_site.measure.fleet.alignment import Offset


def test_clocks_that_may_be_one_are_taken_for_one_and_the_quickest_answer_bounds_the_error():
    found = Offset.between([(0, 40, 100), (200, 212, 220), (300, 345, 400)])
    assert found == Offset(low_ns=-8, high_ns=12)
    assert found.assumed_ns == 0
    assert found.bound_ns(0) == 12


def test_a_clock_that_is_another_is_taken_to_be_in_the_middle_of_what_is_possible():
    found = Offset.between([(0, 1_040, 100), (200, 1_212, 220)])
    assert found == Offset(low_ns=992, high_ns=1_012)
    assert found.assumed_ns == 1_002
    assert found.bound_ns(found.assumed_ns) == 10


def test_a_clock_that_ran_off_in_between_is_off_by_that_too():
    assert Offset(5_000, 5_020).bound_ns(0) == 5_020
