"""The controller's shell: what makes the pure decisions of streamlog.metadata happen, and a node's way to it.

    active      ActiveController: one per voter; decides while its node leads the quorum
    controller_term
                one leadership: commands are decided ahead of their commit, committed in order, answered
    recovery    unclean recovery: queries the replicas of leaderless partitions, has a leader elected
    timers      sessions and the balance check; they end with the leadership
    horizon     the metadata index of a session timeout ago
    clocks      the quorum's clock, from the nodes' heartbeats
    settings    the node's settings as input of the decisions
    service     streamlog.internal.v1.Controller
    identity    which process is at an address; whether a suspected node is gone
    link        ControllerLink: one per node; finds the active controller and calls it

The controller keeps nothing on disk: its state is the image, and a decision that is not committed did not happen.
Sessions end with a leadership and start again with the next (SEMANTICS 8).
"""

from streamlog.controller.active import ActiveController, RegistrationResponse
from streamlog.controller.link import FORWARDED, ControllerLink
from streamlog.controller.service import ControllerService

__all__ = ["FORWARDED", "ActiveController", "ControllerLink", "ControllerService", "RegistrationResponse"]
