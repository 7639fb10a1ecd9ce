"""Protobuf messages to values of the layers below, and back: protobuf ends here.

Every field of a request is checked before anything is made of it: counts before lists are walked, names before they are
looked up, numbers before they are used. What cannot be is refused with the path of the field (`partitions[3].topic`)
and its limit. One bad field refuses the request; what can only be known by looking (is there such a topic?) is answered
part by part, by the layers below.

`fields` has the checks; the other modules one subject each.
"""
