r"""Marks of programs that stand in texts: one table, by their forms.

Each pattern is a regular expression in verbose form. It can begin at one kind of character, and what repeats
in it is possessive and stops where another mark could begin, or after some hundred characters: the time to
find marks grows with the length of a text.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A form of mark.

    Attributes:
        programs: who writes it.
        pattern: a regular expression, verbose.
        examples: marks of this form.
    """

    programs: str
    pattern: str
    examples: tuple[str, ...]


_KEY = r"""[A-Za-z_][\w.:-]{0,60}+"""
_VALUE = r"""(?: "[^"\n]{0,200}+" | '[^'\n]{0,200}+' | [^\s"'<>\[\]]{1,200}+ )"""
_CONTACT_FORM = (
    "text|email|url|tel|textarea|number|range|date|checkbox|radio|select|file|quiz|acceptance|submit|hidden"
)

MARKS = (
    Mark(
        "Unity, TextMesh Pro, Skyrim",
        rf"< [A-Za-z][\w-]{{0,30}}+ = {_VALUE} \s*+ /?+ >",
        ("<color=#ff0000>", "<size=20>", '<link="id">', "<Alias=Player>"),
    ),
    Mark(
        "Slack, Discord, FreeMarker",
        r"< /?+ [@\#!] [&!]?+ \w [^<>\n]{0,200}+ >"
        r" | < /?+ [a-z]{0,2} : [\w-]{1,40}+ (?: : [\w-]{1,40}+ )?+ >",
        (
            "<#C024BE7LH|general>",
            "<!here>",
            "<@&165>",
            "<:blob:1234>",
            "<t:1618953630:R>",
            "<#if user??>",
            "</#if>",
        ),
    ),
    Mark("comments of HTML", r"<!-- (?: [^<-] | -(?!->) | <(?!!--) )*+ -->", ("<!-- a note -->",)),
    Mark(
        "Minecraft",
        r"\u00a7 (?: [a-fk-orxA-FK-ORX] | \d (?! \d ) )",
        ("\u00a7c", "\u00a7r", "\u00a7L"),
    ),
    Mark("RPG Maker, LaTeX", r"\\ [A-Za-z]{1,20}+ \[ [^\[\]\n]{0,60}+ \]", (r"\C[2]", r"\V[12]")),
    Mark("Mailchimp", r"\*\| [^|\n*]{1,100}+ \|\*", ("*|FNAME|*", "*|IF:NAME|*")),
    Mark("mails and shops", r"\# [A-Za-z_][\w.-]{0,60}+ \# (?! [\w\#] )", ("#FIRST_NAME#",)),
    Mark("mails and shops", r"@@ [A-Za-z_][\w.-]{0,60}+ @@", ("@@name@@",)),
    Mark(
        "Salesforce Marketing Cloud",
        r"%% (?: [A-Za-z_]\w{0,60}+ | = [^%\n]{1,200}+ (?<= = ) | \[ [^%]{1,400}+ (?<= \] ) ) %%",
        ("%%First_Name%%", "%%=v(@name)=%%"),
    ),
    Mark("Template Toolkit", r"\[% (?: [^%\[] | %(?!\]) | \[(?!%) )++ %\]", ("[% user.name %]",)),
    Mark(
        "Maketext",
        r"\[ (?: _\d | (?: quant | numf | \* | \# ) ,_\d [^\[\]\n]{0,200}+ ) \]",
        ("[_1]", "[quant,_1,dog,dogs]"),
    ),
    Mark(
        "WordPress, BBCode",
        rf"\[ /?+ [A-Za-z][\w-]{{0,40}}+ (?= [\s=] ) (?: = {_VALUE} )?+"
        rf" (?: \s++ {_KEY} = {_VALUE} )*+ \s*+ /?+ \]",
        ('[gallery ids="1,2" columns="3"]', "[color=red]", "[url=https://a.org]"),
    ),
    Mark(
        "Contact Form 7",
        rf"\[ (?: [a-z]{{1,20}}+ \* | (?: {_CONTACT_FORM} ) (?= [^\[\]\"\n]{{0,99}}+ \" | [ ]\w{{1,40}}+- ) )"
        r" [^\[\]\n]{0,300}+ \]",
        ('[text* your-name placeholder "x"]', '[submit "y"]'),
    ),
    Mark("code in Markdown", r"`` [^`\n]{1,200}+ `` | ` (?! \s ) [^`'\n]{1,200}+ `", ("`ls -l`", "``ls``")),
    Mark(
        "terminals",
        r"(?: \x1b | \\ (?: e | 033 | x1[bB] | u001[bB] ) ) \[ [0-?]{0,40}+ [ -/]{0,3}+ [@-~]",
        ("\x1b[1m", r"\033[0m", r"\e[31;1m"),
    ),
)

# What the programs write that prose has too: it is kept if a user names the program.
PRESETS = {
    "angular": Mark(
        "Angular",
        r"\$\{ [^{}]{0,200}+ \} :\w{1,60}+:"
        r" | (?: \} \s*+ )?+ @ (?: if | else | for | empty | switch | case | default | defer )"
        r" (?: \s*+ \( [^()\n]{0,200}+ \) )?+ \s*+ \{",
        ("${name}:NAME:", "@if (n) {", "} @else {"),
    ),
    "discord": Mark("Discord", r"\|\| | ~~ | __ | \*{1,3}+ | :\w{2,40}+:", ("||", "__", ":wave:")),
    "escapes": Mark(
        "escapes of two characters",
        r"\\ (?: [abefnrtv0\\'\"] | x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | U[0-9A-Fa-f]{8} )",
        (r"\n", r"\t", r"\u00e9"),
    ),
    "icu": Mark(
        "ICU: quoted braces, all that is in braces, and the number of a plural",
        r"' [{}] [^'\n]{0,200}+ ' | \{ [^{}\n]{0,200}+ \} | \#",
        ("'{name}'", "{see below}", "#"),
    ),
    "identifiers": Mark(
        "names of programs, options and paths",
        r"\b \w{1,80}+ (?<= [^\W_] _ \w{1,40} ) (?: \(\) )?+ | \b [a-z]{1,40}+ [A-Z] \w{0,80}+ (?: \(\) )?+"
        r" | (?<! \S ) -{1,2} [a-z] [\w-]{0,40}+"
        r" | (?<! [\w/.<] ) (?: ~ | \.{1,2} )?+ (?: / [\w.-]{1,80}+ )++ /?+",
        ("max_tokens", "readFile()", "--dry-run", "/etc/hosts"),
    ),
    "latex": Mark(
        "LaTeX",
        r"\$ [^$\n]{1,200}+ \$ | \\ (?: ref | cite\w? | label | url | input | includegraphics )"
        r" (?: \[ [^\[\]\n]{0,200}+ \] )?+ \{ [^{}\n]{0,200}+ \}"
        r" | \\ (?: [A-Za-z]{1,40}+ \*?+ | [^A-Za-z\s] )",
        ("$x^2$", r"\ref{fig:a}", r"\emph", r"\%"),
    ),
    "liquid": Mark(
        "Liquid: whole blocks of code and notes",
        r"\{%-? \s*+ (comment|raw|schema|style|stylesheet|javascript) \b [^%]{0,100}+ %\}"
        r" (?: [^{] | \{ (?! %-? \s*+ (?: end )?+ \1 \b ) )*+ \{%-? \s*+ end \1 \s*+ -? %\}",
        ("{% raw %}the house{% endraw %}",),
    ),
    "mailchimp": Mark(
        "Mailchimp",
        r"\*\| [^|]{1,300}+ \|\* | \[ [A-Z] [A-Z0-9_:]{1,60}+ \]",
        ("*|IF:NAME|*", "[UNIQID]"),
    ),
    "minecraft": Mark(
        "Minecraft, MiniMessage",
        r"& (?: \# [0-9A-Fa-f]{6} | [0-9a-fk-orxA-FK-ORX] ) | < [/!]?+ [a-z_\#] [\w:\#,'/.\ -]{0,100}+ >",
        ("&c", "&#ff00aa", "<red>", "<click:run_command:/spawn>"),
    ),
    "printf": Mark("C, with a blank as a flag", r"% [ ] \d{0,3}+ [diouxXeEfgGs] \b", ("% d",)),
    "renpy": Mark("Ren'Py", r"\[ [A-Za-z_] [^\[\]\n]{0,100}+ \]", ("[name]", "[points!t]")),
    "rpgmaker": Mark(
        "RPG Maker",
        r"\\ (?: [A-Za-z]{1,20}+ (?: \[ [^\[\]\n]{0,60}+ \] )?+ | [.|!><^${}\\] )",
        (r"\G", r"\.", r"\|", r"\C[2]"),
    ),
    "unity": Mark(
        "Unity, TextMesh Pro",
        r"< /?+ [A-Za-z] [\w-]{0,30}+ (?: [ =] [^<>\n]{0,100}+ )?+ > | \\ [nrt]",
        ("<sprite name>", "<noparse>", r"\n"),
    ),
    "wiki": Mark(
        "MediaWiki, Obsidian",
        r"\[\[ [^\[\]\n]{1,200}+ \]\] | '{2,5}+ | ={2,6}+",
        ("[[The house]]", "'''", "=="),
    ),
    "wordpress": Mark(
        "WordPress",
        r"\[{1,2}+ /?+ [A-Za-z] [\w-]{0,40}+ (?: [\s=] [^\[\]\n]{0,300}+ )?+ \]{1,2}+",
        ("[gallery]", "[/caption]", "[recent posts=5]"),
    ),
}
