"""What every test may count on, however the suite was started."""

import signal

# A suite started in the background inherits an ignored SIGINT, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
