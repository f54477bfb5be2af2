"""What others wrote is shown, and does nothing."""

import random

from rich.text import Text

from vlm_api.bounds import cut, cut_bytes, harmless
from vlm_operator.cli import console as terminal


def printed(capsys, *shown):
    console = terminal.make_console()
    for each in shown:
        console.print(each)
    return capsys.readouterr().out


def test_escape_sequences_and_marks_of_direction_are_written_out(capsys):
    hostile = "a\x1b]52;c;aGk=\x9bb\u202ec"
    table = terminal.columns("NAME", "VALUE")
    table.add_row("n", hostile)
    out = printed(capsys, hostile, Text(hostile, style="red"), terminal.pairs([("n", hostile)]), table)
    assert out.count("a\\x1b]52;c;aGk=\\x9bb\\u202ec") == 4
    assert not set("\x1b\x9b\u202e") & set(out)


def test_markup_is_shown_as_it_is(capsys):
    assert "[red]x[/red]" in printed(capsys, "[red]x[/red]")


def test_colours_of_the_terminal_stay():
    console = terminal._HarmlessConsole(force_terminal=True, no_color=False, color_system="standard", markup=False)
    with console.capture() as capture:
        console.print(Text("x\x1b[2J", style="red"))
    assert capture.get().startswith("\x1b[31m")
    assert "\\x1b[2J" in capture.get()


def test_ordinary_text_is_left_alone():
    text = "Größe 画像 😀 [x] 1 × 2…\n\tnext"
    assert harmless(text) == text
    assert cut(text, len(text)) == cut_bytes(text, len(text.encode())) == text


def test_every_cut_is_within_its_bound():
    draw = random.Random(13)
    for _ in range(300):
        text = "".join(draw.choices("xü…😀\x1b\u202e", k=draw.choice([0, 60, 1023, 1024, 1025, 5000])))
        most = draw.choice([64, 512, 1024])
        assert len(cut(text, most)) <= most
        assert len(cut_bytes(text, most).encode()) <= most
        assert not set("\x1b\u202e") & set(harmless(text))
