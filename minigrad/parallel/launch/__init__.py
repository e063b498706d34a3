"""`minigrad launch`: start many ranks on one host or several, and start them again when one fails.

One head, the process that the user started, and one agent a host. An agent starts ranks and kills them at the head's
word; the head decides. Both hear from each other every second, so each side notices when the other is gone, and then
kills what is left on its side. No rank outlives its agent, and no agent its head.

    command     what to start, how many times, on which hosts
    processes   one rank as a process
    agent       the process on each host
    guard       what ends the ranks of an agent that was killed
    hosts       the head's view of one host
    head        restarts and signals
    attempt     what became of the ranks that were started together
    messages    what head and agents say to each other
    watch       what a rank does to notice the end of its agent
"""
