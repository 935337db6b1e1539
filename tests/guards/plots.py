"""Two plain plots as SVG, without a library."""

COLOURS = ["#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3"]


def text(x, y, words, anchor="middle", size=12):
    words = str(words).replace("&", "&amp;").replace("<", "&lt;")
    return '<text x="%g" y="%g" font-size="%d" text-anchor="%s" font-family="sans-serif">%s</text>' % (x, y, size, anchor, words)


def svg(width, height, parts):
    return '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d"><rect width="100%%" height="100%%" fill="white"/>%s</svg>\n' % (
        width, height, width, height, "".join(parts))


def bars(title, groups, series):
    """Shares from 0 to 1, grouped."""
    left, top, tall, wide = 50, 60, 200, max(90, 26 * len(series) + 20)
    parts = [text(left, 20, title, "start", 15)]
    for n in range(5):
        y = top + tall * (1 - n / 4)
        parts.append('<line x1="%d" x2="%d" y1="%g" y2="%g" stroke="#ddd"/>' % (left, left + wide * len(groups), y, y))
        parts.append(text(left - 6, y + 4, "%d %%" % (25 * n), "end", 11))
    for s, (name, values) in enumerate(series.items()):
        colour = COLOURS[s % len(COLOURS)]
        parts.append('<rect x="%d" y="32" width="12" height="12" fill="%s"/>' % (left + 120 * s, colour) + text(left + 120 * s + 17, 42, name, "start"))
        for g, value in enumerate(values):
            x = left + wide * g + 10 + 26 * s
            height = max(1.0, tall * value)
            parts.append('<rect x="%g" y="%g" width="22" height="%g" fill="%s"/>' % (x, top + tall - height, height, colour))
            parts.append(text(x + 11, top + tall - height - 3, "%d" % round(100 * value), size=10))
    parts += [text(left + wide * g + wide / 2 - 5, top + tall + 18, name) for g, name in enumerate(groups)]
    return svg(left + wide * len(groups) + 20, top + tall + 35, parts)


def squares(title, rows):
    """One row an address: a square a command, the one at which it was noticed dark."""
    parts = [text(20, 22, title, "start", 15)]
    for r, (caught, calls) in enumerate(rows):
        y = 45 + 34 * r
        parts.append(text(20, y + 16, "%d. address" % (r + 1), "start"))
        for n in range(calls):
            colour = "#1f3b63" if n + 1 == caught else "#9fb8dd" if n + 1 < caught else "#e3e9f3"
            parts.append('<rect x="%d" y="%d" width="22" height="22" fill="%s"/>' % (110 + 26 * n, y, colour))
    return svg(130 + 26 * max([calls for _, calls in rows] + [1]), 60 + 34 * len(rows), parts)
