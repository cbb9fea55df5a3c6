"""A card whose calls can be cut short, wherever a test likes."""

CHANGING = ("allocate", "free", "write", "read", "run", "wait", "stream", "reset", "clear", "buffers", "abort", "step")


class Cut:
    """A card whose calls end in a KeyboardInterrupt: the call number `at`, before it or behind it; None: none does.
    `count`: calls so far. also: names of calls that count, too."""

    def __init__(self, inner, also=()):
        self.inner, self.at, self.is_behind, self.count, self.also = inner, None, False, 0, also

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        return self._wrapped(found) if name in (*CHANGING, *self.also) else found

    def _wrapped(self, method):
        def call(*arguments, **named):
            mine, self.count = self.count, self.count + 1
            if mine == self.at and not self.is_behind:
                raise KeyboardInterrupt
            result = method(*arguments, **named)
            if mine == self.at:
                raise KeyboardInterrupt
            return result
        return call

    def cut(self, at, is_behind=False):
        self.at, self.is_behind, self.count = at, is_behind, 0
