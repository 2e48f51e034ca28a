"""The nouns: English and an irregular plural; German with its article; German plural (- for none); kinds.

After the kinds, `=Form` gives a genitive that the rule does not, and `weak` marks nouns that take -(e)n in
every case but the nominative. A profession's feminine form stands in FEMININE_PROFESSIONS.
"""

NOUNS = """
man/men; der Mann; Männer; person human
woman/women; die Frau; Frauen; person human
child/children; das Kind; Kinder; person human pupil
boy; der Junge; Jungen; person human pupil weak
girl; das Mädchen; Mädchen; person human pupil
doctor; der Arzt; Ärzte; person human worker
teacher; der Lehrer; Lehrer; person human worker
neighbor; der Nachbar; Nachbarn; person human known many weak
friend; der Freund; Freunde; person known many
colleague; der Kollege; Kollegen; person known many weak
guest; der Gast; Gäste; person human
tourist; der Tourist; Touristen; person human weak
student; der Student; Studenten; person human pupil worker weak
customer; der Kunde; Kunden; person human weak
cook; der Koch; Köche; person human worker =Kochs
baker; der Bäcker; Bäcker; person human worker
police officer; der Polizist; Polizisten; person human worker weak
engineer; der Ingenieur; Ingenieure; person human worker
lawyer; der Anwalt; Anwälte; person human worker
farmer; der Bauer; Bauern; person human worker weak
artist; der Künstler; Künstler; person human worker
musician; der Musiker; Musiker; person human worker
mechanic; der Mechaniker; Mechaniker; person human worker
nurse; die Krankenschwester; Krankenschwestern; person human
waitress; die Kellnerin; Kellnerinnen; person human
saleswoman/saleswomen; die Verkäuferin; Verkäuferinnen; person human
singer; die Sängerin; Sängerinnen; person human
boss; der Chef; Chefs; person known =Chefs
mother; die Mutter; Mütter; person family
father; der Vater; Väter; person family
brother; der Bruder; Brüder; person family pupil many
sister; die Schwester; Schwestern; person family pupil many
son; der Sohn; Söhne; person family pupil many
daughter; die Tochter; Töchter; person family pupil many
grandmother; die Großmutter; Großmütter; person family
grandfather; der Großvater; Großväter; person family
aunt; die Tante; Tanten; person family many
uncle; der Onkel; Onkel; person family many
dog; der Hund; Hunde; animal pet
cat; die Katze; Katzen; animal pet
horse; das Pferd; Pferde; animal
cow; die Kuh; Kühe; animal
bird; der Vogel; Vögel; animal pet
rabbit; der Hase; Hasen; animal pet weak
pig; das Schwein; Schweine; animal
bear; der Bär; Bären; animal weak
mouse/mice; die Maus; Mäuse; animal
apple; der Apfel; Äpfel; food fruit cuttable
pear; die Birne; Birnen; food fruit cuttable
banana; die Banane; Bananen; food fruit
strawberry; die Erdbeere; Erdbeeren; food fruit
tomato; die Tomate; Tomaten; food fruit cuttable
potato; die Kartoffel; Kartoffeln; food dish
egg; das Ei; Eier; food dish =Eies
onion; die Zwiebel; Zwiebeln; cuttable produce
sausage; die Wurst; Würste; food cuttable
soup; die Suppe; Suppen; food dish meal
salad; der Salat; Salate; food meal
pizza; die Pizza; Pizzen; food meal baked
cake; der Kuchen; Kuchen; food baked cuttable sweet
roll; das Brötchen; Brötchen; food baked
cookie; der Keks; Kekse; food baked sweet
bread; das Brot; -; food baked cuttable
cheese; der Käse; -; food cuttable
meat; das Fleisch; -; food dish cuttable
rice; der Reis; -; food dish
fish; der Fisch; -; food dish meal
ham; der Schinken; -; food cuttable
chocolate; die Schokolade; -; food sweet
honey; der Honig; -; food sweet
butter; die Butter; -; food
water; das Wasser; -; drink
milk; die Milch; -; drink
coffee; der Kaffee; -; drink hot
tea; der Tee; -; drink hot
beer; das Bier; -; drink
wine; der Wein; -; drink
juice; der Saft; -; drink
book; das Buch; Bücher; text thing lying gift ware
letter; der Brief; Briefe; text written thing lying mail
newspaper; die Zeitung; Zeitungen; text thing lying ware
magazine; die Zeitschrift; Zeitschriften; text thing lying ware
postcard; die Postkarte; Postkarten; text written thing lying mail ware
report; der Bericht; Berichte; text written
e-mail; die E-Mail; E-Mails; text written
poem; das Gedicht; Gedichte; text written
novel; der Roman; Romane; text written
story; die Geschichte; Geschichten; text written
recipe; das Rezept; Rezepte; text written
coat; der Mantel; Mäntel; clothing garment ware
hat; der Hut; Hüte; clothing ware lying
shirt; das Hemd; Hemden; clothing garment ware
dress; das Kleid; Kleider; clothing garment womens ware gift
jacket; die Jacke; Jacken; clothing garment ware
skirt; der Rock; Röcke; clothing garment womens ware
sweater; der Pullover; Pullover; clothing garment ware gift
shoe; der Schuh; Schuhe; clothing garment ware pair =Schuhs
boot; der Stiefel; Stiefel; clothing garment ware pair
glove; der Handschuh; Handschuhe; clothing garment ware lying pair
scarf/scarves; der Schal; Schals; clothing ware lying gift =Schals
suit; der Anzug; Anzüge; clothing garment ware
car; das Auto; Autos; vehicle owned motor
bus; der Bus; Busse; vehicle public motor =Busses
train; der Zug; Züge; vehicle public
taxi; das Taxi; Taxis; vehicle motor
tram; die Straßenbahn; Straßenbahnen; vehicle public
plane; das Flugzeug; Flugzeuge; vehicle public
ship; das Schiff; Schiffe; vehicle public
boat; das Boot; Boote; vehicle owned rental
bicycle; das Fahrrad; Fahrräder; vehicle owned rental gift
motorcycle; das Motorrad; Motorräder; vehicle owned motor
truck; der Lastwagen; Lastwagen; vehicle motor
table; der Tisch; Tische; furniture surface
chair; der Stuhl; Stühle; furniture surface standing
bed; das Bett; Betten; furniture surface
sofa; das Sofa; Sofas; furniture surface
cupboard; der Schrank; Schränke; furniture inside
carpet; der Teppich; Teppiche; furniture
bag; die Tasche; Taschen; thing inside carried ware gift
suitcase; der Koffer; Koffer; thing inside carried ware standing packed
box; die Kiste; Kisten; thing inside carried standing packed
window; das Fenster; Fenster; opening spot
door; die Tür; Türen; opening spot
lamp; die Lampe; Lampen; device switched ware standing
clock; die Uhr; Uhren; device ware gift hanging
radio; das Radio; Radios; device switched ware standing
computer; der Computer; Computer; device switched ware
phone; das Telefon; Telefone; device ware
camera; die Kamera; Kameras; device switched ware gift lying
washing machine; die Waschmaschine; Waschmaschinen; device switched ware
picture; das Bild; Bilder; artwork thing gift hanging
mirror; der Spiegel; Spiegel; thing hanging ware
vase; die Vase; Vasen; thing standing gift ware
cup; die Tasse; Tassen; dishes thing standing
glass; das Glas; Gläser; dishes thing standing
plate; der Teller; Teller; dishes thing standing
bottle; die Flasche; Flaschen; dishes thing standing
knife; das Messer; Messer; dishes thing lying
fork; die Gabel; Gabeln; dishes thing lying
spoon; der Löffel; Löffel; dishes thing lying
key; der Schlüssel; Schlüssel; thing lying personal
umbrella; der Regenschirm; Regenschirme; thing personal ware lying
ball; der Ball; Bälle; thing gift ware lying
doll; die Puppe; Puppen; thing gift ware lying
flower; die Blume; Blumen; gift ware plant
gift; das Geschenk; Geschenke; thing lying present
ticket; die Fahrkarte; Fahrkarten; thing lying personal
photo; das Foto; Fotos; artwork thing lying
pencil; der Bleistift; Bleistifte; thing lying ware
towel; das Handtuch; Handtücher; thing lying ware
blanket; die Decke; Decken; thing lying ware
tree; der Baum; Bäume; plant
song; das Lied; Lieder; artwork song
movie; der Film; Filme; artwork film =Films
question; die Frage; Fragen; matter
answer; die Antwort; Antworten; matter
problem; das Problem; Probleme; matter
task; die Aufgabe; Aufgaben; matter
idea; die Idee; Ideen; matter
word; das Wort; Wörter; sign
concert; das Konzert; Konzerte; event
party; die Feier; Feiern; event
meeting; die Besprechung; Besprechungen; event
exam; die Prüfung; Prüfungen; event
game; das Spiel; Spiele; event =Spiels
wedding; die Hochzeit; Hochzeiten; event
trip; die Reise; Reisen; event
excursion; der Ausflug; Ausflüge; event
course; der Kurs; Kurse; event
apartment; die Wohnung; Wohnungen; home
floor; der Boden; Böden; ground
wall; die Wand; Wände; upright
rain; der Regen; -; weather
snow; der Schnee; -; weather
wind; der Wind; -; weather
storm; der Sturm; Stürme; weather
fog; der Nebel; -; weather
cold; die Kälte; -; weather
sun; die Sonne; -; sky
"""

PLACES = """
house; das Haus; Häuser; building home; in; in; -
room; das Zimmer; Zimmer; indoors; in; in; in
kitchen; die Küche; Küchen; indoors; in; in; in
bathroom; das Badezimmer; Badezimmer; indoors; in; in; in
cellar; der Keller; Keller; indoors; in; in; in
garage; die Garage; Garagen; indoors; in; in; in
garden; der Garten; Gärten; outdoors; in; in; in
office; das Büro; Büros; indoors; in; in; in
school; die Schule; Schulen; building; at; in; in
hospital; das Krankenhaus; Krankenhäuser; building; in; in; in
church; die Kirche; Kirchen; building sight; in; in; in
museum; das Museum; Museen; building sight; in; in; in
theater; das Theater; Theater; building sight; in; in; in
cinema; das Kino; Kinos; building; at; in; in
restaurant; das Restaurant; Restaurants; building eatery; in; in; in
hotel; das Hotel; Hotels; building; in; in; in
café; das Café; Cafés; building eatery; in; in; in
library; die Bibliothek; Bibliotheken; building; in; in; in
supermarket; der Supermarkt; Supermärkte; building; in; in; in
pharmacy; die Apotheke; Apotheken; building near; in; in; in
bakery; die Bäckerei; Bäckereien; building near; in; in; in
bank; die Bank; Banken; building near; in; in; zu
factory; die Fabrik; Fabriken; building; in; in; in
station; der Bahnhof; Bahnhöfe; building near; at; an; zu
airport; der Flughafen; Flughäfen; building; at; an; zu
castle; das Schloss; Schlösser; building sight; in; in; zu
tower; der Turm; Türme; building sight; in; in; zu
market; der Markt; Märkte; outdoors; at; auf; auf
park; der Park; Parks; outdoors sight =Parks; in; in; in
forest; der Wald; Wälder; outdoors; in; in; in
beach; der Strand; Strände; outdoors sight; at; an; an
lake; der See; Seen; outdoors water sight; at; an; an
river; der Fluss; Flüsse; outdoors water; at; an; an
mountain; der Berg; Berge; outdoors high; on; auf; auf
island; die Insel; Inseln; outdoors sight; on; auf; auf
square; der Platz; Plätze; outdoors; on; auf; auf
bridge; die Brücke; Brücken; outdoors sight; on; auf; zu
street; die Straße; Straßen; outdoors way; on; auf; -
city; die Stadt; Städte; town; in; in; in
village; das Dorf; Dörfer; town; in; in; in
"""

FEMININE_PROFESSIONS = {
    "doctor": "Ärztin",
    "teacher": "Lehrerin",
    "student": "Studentin",
    "cook": "Köchin",
    "baker": "Bäckerin",
    "police officer": "Polizistin",
    "engineer": "Ingenieurin",
    "lawyer": "Anwältin",
    "farmer": "Bäuerin",
    "artist": "Künstlerin",
    "musician": "Musikerin",
    "mechanic": "Mechanikerin",
}
