"""Adjectives, and the phrases that do not inflect: times, manners, names.

Adjective columns: English; German; kinds of nouns; then `stem=` and `compared=comparative,superlative`
where the rules (-er, -st, with an umlaut if `umlaut`) do not hold, or `absolute` for adjectives that are
not compared.
"""

ADJECTIVES = """
old; alt; person animal vehicle furniture device clothing building text artwork; umlaut
young; jung; human animal; umlaut
new; neu; vehicle furniture device ware clothing building movie home; compared=neuer,neuest
big; groß; animal furniture thing building outdoors town plant vehicle cake pizza; compared=größer,größt
small; klein; pupil animal furniture thing building town indoors vehicle cake pizza; -
beautiful; schön; clothing artwork sight town plant gift; -
red; rot; clothing vehicle dishes fruit furniture opening plant; absolute
blue; blau; clothing vehicle dishes furniture opening carried; absolute
green; grün; clothing vehicle dishes furniture opening fruit; absolute
black; schwarz; clothing vehicle animal carried; absolute
white; weiß; clothing vehicle animal dishes furniture plant; absolute
yellow; gelb; clothing vehicle plant dishes; absolute
brown; braun; clothing animal carried furniture; absolute
gray; grau; clothing animal; absolute
long; lang; written event song film way; umlaut
short; kurz; written event song film; umlaut
warm; warm; clothing dish drink indoors; umlaut
cold; kalt; drink indoors dish; umlaut
hot; heiß; dish hot; -
expensive; teuer; ware vehicle furniture clothing eatery wine home; stem=teur compared=teurer,teuerst
cheap; billig; ware vehicle furniture clothing eatery; -
good; gut; food drink text film idea answer known; compared=besser,best
bad; schlecht; idea answer film drink; -
interesting; interessant; text artwork question answer problem task idea sight event; -
boring; langweilig; text film event town; -
heavy; schwer; carried furniture; -
tired; müde; person mood; stem=müd absolute
hungry; hungrig; person animal mood; absolute
thirsty; durstig; human animal mood; absolute
angry; wütend; person mood; absolute
nervous; nervös; person mood; absolute
sick; krank; person animal mood; absolute
friendly; freundlich; person pet; -
happy; glücklich; person mood; -
sad; traurig; person song story mood; -
strong; stark; human animal; umlaut
poor; arm; human; absolute
rich; reich; human; absolute
famous; berühmt; worker artwork sight; absolute
polite; höflich; human; -
clever; klug; human idea answer; umlaut
funny; lustig; story film song human; -
nice; nett; person; -
patient; geduldig; person; absolute
fresh; frisch; fruit food; absolute
sweet; süß; fruit sweet; -
clean; sauber; dishes clothing indoors opening town; absolute
dirty; schmutzig; dishes clothing indoors opening vehicle; absolute
empty; leer; inside cup glass plate bottle indoors; absolute
full; voll; inside public eatery; absolute
broken; kaputt; device dishes vehicle furniture opening; absolute
modern; modern; building device home; -
quiet; ruhig; town outdoors indoors pet; -
loud; laut; device town way song; -
dark; dunkel; indoors forest; stem=dunkl compared=dunkler,dunkelst
round; rund; table mirror carpet; absolute
important; wichtig; written matter event; -
difficult; schwierig; question problem task exam; -
easy; einfach; question task exam recipe; -
fast; schnell; vehicle horse; -
slow; langsam; vehicle; -
dangerous; gefährlich; way bear high dog; -
wide; breit; way water opening bed; -
high; hoch; high tower tree; stem=hoh compared=höher,höchst
"""

HABITS = """
every day; jeden Tag
every morning; jeden Morgen
every evening; jeden Abend
every Sunday; jeden Sonntag
"""

RARE_HABITS = """
every week; jede Woche
every month; jeden Monat
every year; jedes Jahr
"""

PRESENT_TIMES = """
today; heute
now; jetzt
"""

FUTURE_TIMES = """
tomorrow; morgen
tonight; heute Abend
soon; bald
the day after tomorrow; übermorgen
"""

FAR_FUTURE_TIMES = """
this week; diese Woche
next week; nächste Woche
next month; nächsten Monat
next year; nächstes Jahr
"""

PAST_TIMES = """
yesterday; gestern
yesterday evening; gestern Abend
this morning; heute Morgen
the day before yesterday; vorgestern
"""

FAR_PAST_TIMES = """
last week; letzte Woche
last month; letzten Monat
last year; letztes Jahr
"""

SEASONS = """
in spring; im Frühling
in summer; im Sommer
in fall; im Herbst
in winter; im Winter
"""

WEEKDAYS = """
Monday; Montag
Tuesday; Dienstag
Wednesday; Mittwoch
Thursday; Donnerstag
Friday; Freitag
Saturday; Samstag
Sunday; Sonntag
"""

MONTHS = """
January; Januar
February; Februar
March; März
April; April
May; Mai
June; Juni
July; Juli
August; August
September; September
October; Oktober
November; November
December; Dezember
"""

FREQUENCIES = """
often; oft
always; immer
never; nie
sometimes; manchmal
rarely; selten
usually; normalerweise
"""

DURATIONS = """
year; Jahr; Jahre; Jahren
month; Monat; Monate; Monaten
week; Woche; Wochen; Wochen
day; Tag; Tage; Tagen
hour; Stunde; Stunden; Stunden
minute; Minute; Minuten; Minuten
"""

CITIES = """
Berlin; Berlin
Hamburg; Hamburg
Munich; München
Vienna; Wien
Cologne; Köln
Zurich; Zürich
Rome; Rom
Paris; Paris
"""

NAMES = """
Anna she
Maria she
Julia she
Laura she
Paul he
Peter he
Thomas he
Max he
"""

OTHER_LEMMAS = """
aber, als, an, auf, bevor, bitte, dass, dieser, dürfen, ein, Entschuldigung, er, es, Euro, fast, für,
gerade, hinter, ich, ihr, in, jeder, jetzt, kein, können, mein, mit, müssen, nach, nächster, neben, nicht,
ob, obwohl, ohne, schon, sehr, sein, seit, sie, sollen, sondern, so, trotz, Uhr, um, und, unser, unter,
viel, Viertel, von, vor, während, wann, warum, was, wegen, weil, welcher, wenn, wer, werden, wie, wir,
wissen, wo, woher, wohin, wollen, Zeit, zu
"""

CONTRARIES = """
old young new modern
big small
red blue green black white yellow brown gray
long short
warm cold hot
expensive cheap
good bad interesting boring
tired hungry thirsty sick happy sad angry nervous
rich poor
fresh sweet
clean dirty broken
empty full
quiet loud
difficult easy
fast slow
friendly polite nice
"""
