"""Places are numbered on from the deliveries before."""

from celery_once_more.testing.points import Numbering


def test_number_and_turn_go_on_from_what_was_reached_before():
    first = Numbering()
    earlier = [first.next("before", "commit", "COMMIT"), first.next("after", "commit", "COMMIT")]
    later = Numbering(delivery=2, earlier=earlier)
    again, new = later.next("after", "commit", "COMMIT"), later.next("after", "return", "return")
    assert [(str(point), point.number, point.delivery) for point in (*earlier, again, new)] == [
        ("before COMMIT", 1, 1), ("after COMMIT", 2, 1), ("after COMMIT #2", 3, 2), ("after return", 4, 2),
    ]  # fmt: skip


def test_the_same_place_in_another_delivery_is_another():
    places = [Numbering(delivery=delivery).next("after", "commit", "COMMIT") for delivery in (1, 2)]
    assert len({place.identity for place in places}) == 2
