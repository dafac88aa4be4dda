"""The rules of SlimeVolley, written again: a timestep of ball and slimes as objects, for tests."""

import math

TAU, GRAVITY, GROUND, NET = 1 / 30, -29.400000000000002, 1.5, 3.5


class Disc:
    def __init__(self, numbers):
        self.x, self.y, self.vx, self.vy, self.r = map(float, numbers)

    def numbers(self):
        return [self.x, self.y, self.vx, self.vy, self.r]

    def move(self):
        self.x, self.y = self.x + self.vx * TAU, self.y + self.vy * TAU

    def hits(self, other):
        return (self.x - other.x) ** 2 + (self.y - other.y) ** 2 < (self.r + other.r) ** 2

    def bounce(self, other):
        if not self.hits(other):
            return
        angle = math.atan2(self.y - other.y, self.x - other.x)
        normal = math.cos(angle), math.sin(angle)
        while self.hits(other):
            self.x, self.y = self.x + 0.1 * normal[0], self.y + 0.1 * normal[1]
        towards = (self.vx - other.vx) * normal[0] + (self.vy - other.vy) * normal[1]
        self.vx, self.vy = self.vx - 2 * towards * normal[0], self.vy - 2 * towards * normal[1]


def walk(slime, side, run, jump):
    """Run is 1 to the net, -1 away from it."""
    on_ground = slime.y <= GROUND + 0.1 * TAU
    slime.vy = 13.5 if jump and on_ground else slime.vy + GRAVITY * TAU
    slime.vx = -side * run * 17.5
    slime.move()
    if slime.y <= GROUND:
        slime.y, slime.vy = GROUND, 0.0
    if not 2.0 < side * slime.x < 22.5:
        slime.x, slime.vx = side * min(max(side * slime.x, 2.0), 22.5), 0.0


def opponent(ball, slime):
    """Return run and jump of the left slime."""
    under = ball.vy**2 - 2 * GRAVITY * (ball.y - 3.5)
    time = max((ball.vy + math.sqrt(under)) / -GRAVITY, 0.0) if under > 0 else 0.0
    lands = ball.x + ball.vx * time
    lands = lands if lands >= -23.5 else -47.0 - lands
    away = (lands - 0.5 if lands < 0 else -12.0) - slime.x
    near = ball.x < 0 and ball.y < 6 and ball.vy < 0 and -1 < ball.x - slime.x < 2.5
    return (1 if away > 0.3 else -1 if away < -0.3 else 0), near


def timestep(ball, left, right, pause, choice):
    """Change the discs; return the side of the ground that the ball has met, or 0."""
    run, jump = opponent(ball, left)
    walk(left, -1, run, jump)
    walk(right, 1, (0, 1, -1)[choice % 3], choice >= 3)
    before = ball.x
    if not pause:
        ball.vy += GRAVITY * TAU
        speed = math.hypot(ball.vx, ball.vy)
        if speed > 22.5:
            ball.vx, ball.vy = ball.vx / speed * 22.5, ball.vy / speed * 22.5
        ball.move()
    for other in (left, right, Disc((0, NET, 0, 0, 0.5))):
        ball.bounce(other)
    if abs(ball.x) >= 23.5:
        ball.x, ball.vx = math.copysign(23.5 - 0.1 * TAU, ball.x), -ball.vx
    if ball.y <= GROUND + ball.r:
        return -1 if ball.x <= 0 else 1
    if ball.y >= 47.5:
        ball.y, ball.vy = 47.5 - 0.1 * TAU, -ball.vy
    for side in (-1, 1):
        if side * ball.x <= 1 < side * before and ball.y <= NET and not pause:
            ball.x, ball.vx = side * (1 + 0.1 * TAU), -ball.vx
    return 0
