"""The verbs. `an|rufen` has a separable prefix, `be-suchen` an inseparable one (its participle has no ge-).

Columns: English; German; third person, preterite and participle where the verb is strong or irregular
(without a separable prefix; - for none); kinds of object, or of place, and flags; for some, the German
preposition and its case. The flags: `sein` (for the perfect), `reflexive`, `simple` (the past is the
preterite), `single` (no bare plural as object), and one that limits the tenses: `stative`, `once` (no
habit), `plain` (not intended), `duty` (not wished).
"""

TRANSITIVE = """
eat; essen; isst aß gegessen; food
drink; trinken; trinkt trank getrunken; drink
cook; kochen; -; dish
bake; backen; backt backte gebacken; baked
cut; schneiden; schneidet schnitt geschnitten; cuttable
buy; kaufen; -; food drink produce ware owned furniture
sell; ver-kaufen; -; ware owned furniture home
order; be-stellen; -; meal drink
pay for; be-zahlen; -; meal drink ware personal
read; lesen; liest las gelesen; text
write; schreiben; schreibt schrieb geschrieben; written
translate; über-setzen; -; text
wear; tragen; trägt trug getragen; clothing
carry; tragen; trägt trug getragen; carried furniture
wash; waschen; wäscht wusch gewaschen; clothing owned dishes fruit
repair; reparieren; -; device vehicle furniture single
use; be-nutzen; -; device dishes single
open; öffnen; -; opening packed inside single
close; schließen; schließt schloss geschlossen; opening packed inside single
clean; putzen; -; indoors opening pair single
look for; suchen; -; personal pet clothing thing single
find; finden; findet fand gefunden; personal pet clothing thing
lose; ver-lieren; verliert verlor verloren; personal clothing stative single
forget; ver-gessen; vergisst vergaß vergessen; personal clothing matter stative single
need; brauchen; -; personal clothing device dishes thing stative
see; sehen; sieht sah gesehen; human animal vehicle sight stative
hear; hören; -; animal song vehicle stative
visit; be-suchen; -; person sight
meet; treffen; trifft traf getroffen; person
know; kennen; kennt kannte gekannt; person sight town song stative
understand; ver-stehen; versteht verstand verstanden; matter sign text person stative
greet; be-grüßen; -; human
ask; fragen; -; human
draw; zeichnen; -; animal sight plant
paint; malen; -; animal sight plant
build; bauen; -; building bridge boat
rent; mieten; -; home rental single
pack; packen; -; suitcase bag single
plan; planen; -; event
sing; singen; singt sang gesungen; song
learn; lernen; -; song word poem
feed; füttern; -; animal
solve; lösen; -; problem task
plant; pflanzen; -; plant
"""

SEPARABLE = """
call; an|rufen; ruft rief gerufen; person
invite; ein|laden; lädt lud geladen; person
pick up; ab|holen; -; person
turn on; ein|schalten; -; switched single
turn off; aus|schalten; -; switched single
put on; an|ziehen; zieht zog gezogen; garment single
take off; aus|ziehen; zieht zog gezogen; garment single
try on; an|probieren; -; clothing single
tidy up; auf|räumen; -; indoors single
take along; mit|nehmen; nimmt nahm genommen; personal carried gift single
bring along; mit|bringen; bringt brachte gebracht; gift food drink
throw away; weg|werfen; wirft warf geworfen; thing dishes single
unpack; aus|packen; -; present packed single
prepare; vor|be-reiten; -; event
borrow; aus|leihen; leiht lieh geliehen; book magazine umbrella camera single
get to know; kennen|lernen; -; human once
"""

INTRANSITIVE = """
sleep; schlafen; schläft schlief geschlafen; rest room garden park hotel hospital beach
work; arbeiten; -; rest building office garden kitchen market
laugh; lachen; -; rest kitchen garden school theater cinema café plain
cry; weinen; -; rest room school hospital cinema street plain
dance; tanzen; -; rest kitchen garden square street beach theater hotel
play; spielen; -; rest garden park beach street forest school square room
wait; warten; -; rest building street bridge square
study; lernen; -; rest library school room café garden office
smoke; rauchen; -; rest garden street café park bridge square
swim; schwimmen; schwimmt schwamm geschwommen; water sein
get up; auf|stehen; steht stand gestanden; early sein
wake up; auf|wachen; -; early sein plain
fall asleep; ein|schlafen; schläft schlief geschlafen; early sein plain
arrive; an|kommen; kommt kam gekommen; arrival sein
depart; ab|fahren; fährt fuhr gefahren; departure sein
come back; zurück|kommen; kommt kam gekommen; arrival sein
go out; aus|gehen; geht ging gegangen; evening sein
go shopping; ein|kaufen; -; evening
watch TV; fern|sehen; sieht sah gesehen; evening
begin; an|fangen; fängt fing gefangen; event
take place; statt|finden; findet fand gefunden; event
go; gehen; geht ging gegangen; walk sein
drive; fahren; fährt fuhr gefahren; ride sein
travel; reisen; -; ride sein
fly; fliegen; fliegt flog geflogen; flight sein
come; kommen; kommt kam gekommen; origin sein
live; wohnen; -; dwell
stay; bleiben; bleibt blieb geblieben; dwell sein
rain; regnen; -; weather
snow; schneien; -; weather
shine; scheinen; scheint schien geschienen; sky
ring; klingeln; -; bell
bark; bellen; -; dog
"""

DATIVE = """
help; helfen; hilft half geholfen; person
thank; danken; -; person
answer; antworten; -; person
follow; folgen; -; teacher neighbor friend colleague boss tourist sein stative
trust; ver-trauen; -; person stative
congratulate; gratulieren; -; known family
listen to; zu|hören; -; person
"""

GIVING = """
give; geben; gibt gab gegeben; gift food personal
bring; bringen; bringt brachte gebracht; gift food dishes mail
show; zeigen; -; artwork clothing personal mail
send; schicken; -; gift mail
lend; leihen; leiht lieh geliehen; personal owned book camera
"""

EXPLAINING = """
explain; er-klären; -; matter
describe; be-schreiben; beschreibt beschrieb beschrieben; sight artwork
recommend; emp-fehlen; empfiehlt empfahl empfohlen; film eatery sight
"""

REFLEXIVE = """
hurry; be-eilen; -; rest reflexive duty
sit down; setzen; -; rest reflexive
rest; aus|ruhen; -; rest reflexive
get dressed; an|ziehen; zieht zog gezogen; rest reflexive
relax; ent-spannen; -; rest reflexive
"""

PREPOSITIONAL = """
wait for; warten; -; person public event; auf; accusative
think of; denken; denkt dachte gedacht; person event stative; an; accusative
talk about; sprechen; spricht sprach gesprochen; event film matter; über; accusative
laugh about; lachen; -; story film idea plain; über; accusative
dream of; träumen; -; trip owned beach island wedding plain; von; dative
take part in; teil|nehmen; nimmt nahm genommen; course meeting excursion exam game; an; dative
look forward to; freuen; -; event reflexive stative; auf; accusative
be happy about; freuen; -; present letter answer idea reflexive stative; über; accusative
remember; er-innern; -; person event reflexive stative; an; accusative
complain about; be-schweren; -; weather restaurant hotel boss reflexive; über; accusative
take care of; kümmern; -; pet known family plant reflexive; um; accusative
be interested in; interessieren; -; film sight artwork reflexive stative; für; accusative
"""

POSITIONAL = """
be; sein; ist war gewesen; sein simple
have; haben; hat hatte gehabt; simple stative
be; stehen; steht stand gestanden; simple
be; liegen; liegt lag gelegen; simple
be; hängen; hängt hing gehangen; simple
put; stellen; -; standing
put; legen; -; lying
hang; hängen; -; hanging
cost; kosten; -; ware
take; dauern; -; -
say; sagen; -; -
believe; glauben; -; -
hope; hoffen; -; -
know; wissen; weiß wusste gewusst; -
try; ver-suchen; -; -
"""

BELONGING = """
belong to; ge-hören; -; owned clothing carried stative
please; ge-fallen; gefällt gefiel gefallen; artwork sight town clothing stative
"""
