"""The controller's shell: what makes the pure decisions of streamlog.metadata happen, and a node's way to it.

    active      ActiveController: one a voter; decides while its node leads the quorum
    controller_term
                one leadership: commands in, decisions looked ahead, committed in order, answered
    recovery    what nodes say of partitions that nobody leads, and who leads then
    timers      sessions and the balance check, which die with the leadership
    settings    the node's settings as the decisions want them
    service     streamlog.internal.v1.Controller
    identity    who is at an address; the second look at a node that may be gone
    link        ControllerLink: one a node; finds the active controller and asks it

The controller has no state of its own on any disk: what it knows is the image, and what it does not commit has not
happened. Sessions are forgotten with a leadership and begin anew with the next (SEMANTICS 8).
"""

from streamlog.controller.active import ActiveController, RegistrationResponse
from streamlog.controller.link import FORWARDED, ControllerLink
from streamlog.controller.service import ControllerService

__all__ = ["FORWARDED", "ActiveController", "ControllerLink", "ControllerService", "RegistrationResponse"]
