"""The world the stories happen in: who lives there, what they own, where and when.

Plain tables, no logic. Two marks are used in every text:

    [one|two|three]   one of these, chosen at random; may be nested, an empty part is allowed
    {name}            a field of the story, such as {N} for the hero's name; {^he} is the same with a capital

`stories.py` says which fields there are.
"""

# ---------------------------------------------------------------- who
# noun | flags | adjectives | way of moving | home | gesture
# flags: - none;   m, f  always he, always she;   F flies, S swims (some obstacles are none to them);   P a person
CHARACTERS = """
fox               | -  | small red, quick, clever, young       | trot    | den                    | swished {his} tail
rabbit            | -  | small brown, quick, white, young      | hop     | burrow                 | wiggled {his} nose
hare              | -  | long-eared, swift, young, gray        | leap    | hollow                 | twitched {his} long ears
bear              | -  | big, brown, sleepy, round             | lumber  | cave                   | scratched {his} round ears
wolf              | -  | gray, shy, lanky, young               | lope    | cave                   | pricked up {his} ears
badger            | -  | stout, old, striped, gruff            | shuffle | burrow                 | smoothed {his} whiskers
hedgehog          | -  | small, round, prickly, shy            | shuffle | nest                   | rolled up and unrolled again
squirrel          | -  | red, quick, young, busy               | scamper | nest                   | flicked {his} tail
mouse             | -  | tiny, gray, brave little, brown       | scurry  | mousehole              | rubbed {his} whiskers
owl               | F  | old, brown, small, wise               | fly     | hollow oak             | blinked {his} round eyes
cat               | -  | black, white, striped, soft-footed    | pad     | attic                  | purred under {his} breath
dog               | -  | shaggy, spotted, friendly, old        | trot    | kennel                 | wagged {his} tail
otter             | S  | sleek, playful, young, brown          | slide   | den                    | turned a somersault
beaver            | S  | busy, stout, young, brown             | waddle  | lodge                  | slapped {his} flat tail
mole              | -  | small, velvet, shy, blinking          | shuffle | tunnel                 | wriggled {his} pink nose
deer              | -  | gentle, spotted, young, slender       | step    | thicket                | lowered {his} head
frog              | S  | green, small, cheerful, young         | hop     | lily pond              | blinked {his} gold eyes
toad              | S  | old, bumpy, brown, patient            | hop     | mossy hole             | puffed out {his} cheeks
turtle            | S  | slow, old, green, patient             | plod    | pond                   | stretched {his} neck
tortoise          | -  | slow, old, patient, wrinkled          | plod    | garden                 | stretched {his} neck
duck              | SF | white, plump, young, cheerful         | waddle  | nest                   | shook {his} feathers
goose             | SF | gray, proud, plump, young             | waddle  | nest                   | stretched {his} wings
swan              | SF | white, quiet, young, graceful         | glide   | nest                   | bent {his} long neck
crow              | F  | black, clever, young, ragged          | fly     | nest                   | tilted {his} head
magpie            | F  | bright-eyed, young, clever            | fly     | nest                   | tilted {his} head
robin             | F  | small, plump, cheerful, young         | flutter | nest                   | puffed up {his} red chest
sparrow           | F  | small, brown, quick, young            | flutter | nest                   | fluffed {his} feathers
wren              | F  | tiny, brown, bold little              | flutter | nest                   | fluffed {his} feathers
raven             | F  | black, old, clever                    | fly     | tower                  | ruffled {his} wings
heron             | F  | tall, gray, thin, patient             | stride  | nest                   | stood on one leg
penguin           | S  | small, plump, young, cheerful         | waddle  | snow house             | flapped {his} short wings
seal              | S  | gray, round, playful, young           | slide   | cove                   | clapped {his} flippers
pig               | -  | pink, round, clever, spotted          | trot    | sty                    | curled {his} tail
sheep             | -  | woolly, gentle, white, young          | trot    | fold                   | shook {his} wool
lamb              | -  | small, woolly, white, bouncing        | skip    | fold                   | skipped on the spot
goat              | -  | shaggy, stubborn, young, white       | trot    | shed                   | stamped {his} hoof
cow               | f  | brown, gentle, spotted                | amble   | barn                   | swished her tail
horse             | -  | old, brown, gentle, tall              | trot    | stable                 | tossed {his} mane
pony              | -  | little, shaggy, spotted, stubborn     | trot    | stable                 | tossed {his} mane
donkey            | -  | gray, stubborn, gentle, old           | plod    | stable                 | waggled {his} long ears
rooster           | m  | proud, red, loud, young               | strut   | henhouse               | shook his comb
hen               | f  | speckled, plump, fussy, brown         | strut   | henhouse               | fluffed her feathers
rat               | -  | gray, clever, thin, young             | scurry  | cellar                 | rubbed {his} whiskers
bat               | F  | small, shy, brown, young              | flutter | belfry                 | folded {his} wings
snail             | -  | small, slow, patient, silvery         | creep   | crack in the wall            | drew in {his} horns and put them out again
ant               | -  | tiny, busy, black, young              | march   | anthill                | waved {his} feelers
bee               | F  | small, busy, golden, young            | fly     | hive                   | hummed a note
beetle            | -  | shiny, green, small, polite           | march   | log                    | waved {his} feelers
spider            | -  | small, clever, shy, long-legged       | creep   | web                    | tapped all eight feet
butterfly         | F  | blue, yellow, small, bright           | flutter | flower bed             | opened and closed {his} wings
moth              | F  | pale, soft, small, shy                | flutter | attic                  | dusted {his} wings
cricket           | -  | small, green, musical, young          | hop     | hearth                 | chirped once
elephant          | -  | gray, gentle, little, wrinkled        | lumber  | grove                  | curled up {his} trunk
lion              | -  | golden, young, sleepy, proud          | pad     | cave                   | shook {his} mane
tiger             | -  | striped, young, quiet, shy            | pad     | cave                   | twitched {his} tail
monkey            | -  | small, brown, playful, quick          | swing   | treetop                | scratched {his} head
giraffe           | -  | tall, young, spotted, gentle          | stride  | grove                  | bent {his} long neck
camel             | -  | patient, dusty, old, young            | plod    | tent                   | shook {his} bells
kangaroo          | -  | young, brown, bouncing                | bound   | thicket                | thumped {his} tail
koala             | -  | gray, sleepy, round, small            | amble   | gum tree               | yawned and smiled
panda             | -  | round, quiet, young, sleepy           | amble   | bamboo hut             | patted {his} stomach
crocodile         | S  | green, old, polite, toothy            | crawl   | riverbank              | smiled with all {his} teeth
hippo             | S  | large, round, gentle, young           | plod    | mudhole                | wiggled {his} small ears
parrot            | F  | green, loud, bright, old              | flap    | cage with an open door | bobbed {his} head
peacock           | Fm | proud, blue, shimmering               | strut   | garden                 | spread his tail
raccoon           | -  | masked, clever, young, gray           | creep   | hollow log             | rubbed {his} paws
skunk             | -  | striped, shy, polite, young           | amble   | burrow                 | fluffed {his} tail
lizard            | -  | green, quick, small, sleepy           | dart    | warm wall              | blinked slowly
chipmunk          | -  | tiny, striped, quick, round-cheeked   | scamper | burrow                 | puffed out {his} cheeks
stork             | F  | white, long-legged, old               | stride  | rooftop                | clapped {his} beak
pelican           | FS | big-beaked, white, old, cheerful      | flap    | pier                   | opened and shut {his} beak
puppy             | -  | small, clumsy, spotted, woolly        | tumble  | basket                 | wagged {his} whole body
kitten            | -  | small, gray, curious, white           | pad     | basket                 | washed one paw
duckling          | S  | small, yellow, fluffy                 | waddle  | nest                   | peeped twice
whale             | S  | great blue, young, gentle             | glide   | bay                    | blew a small fountain
dolphin           | S  | silver, playful, young                | glide   | bay                    | leaped for joy
octopus           | S  | shy, red, clever, eight-armed         | glide   | sea cave               | waved four arms at once
crab              | S  | small, red, sideways, careful         | scuttle | rock pool              | clicked {his} claws
dragon            | F  | small, green, young, shy              | flap    | cave                   | blew a ring of smoke
unicorn           | -  | white, shy, young, silver             | trot    | glade                  | tossed {his} mane
girl              | fP | little, brave, curly-haired, barefoot | run     | cottage                | clapped her hands
boy               | mP | little, freckled, barefoot, quiet     | run     | cottage                | rubbed his nose
baker             | P  | round, cheerful, young, floury        | walk    | bakery                 | dusted {his} hands
fisherman         | mP | old, weathered, quiet, young          | walk    | hut                    | pulled at his cap
grandmother       | fP | kind, silver-haired, merry            | walk    | cottage                | folded her hands
grandfather       | mP | kind, white-bearded, merry            | walk    | cottage                | stroked his beard
lighthouse keeper | P  | quiet, old, young, patient            | walk    | lighthouse             | looked out at the water
tailor            | P  | thin, careful, young, old             | walk    | shop                   | straightened {his} sleeves
shepherd          | P  | young, old, quiet, windblown          | walk    | hut                    | leaned on {his} staff
king              | mP | old, round, kindly, absent-minded     | stroll  | castle                 | gathered up his robe
queen             | fP | kind, young, clever, gray-haired      | stroll  | castle                 | gathered up her robe
princess          | fP | young, bold, freckled, clever         | run     | castle                 | tucked up her skirts
prince            | mP | young, shy, freckled, dreamy          | run     | castle                 | pushed back his hair
knight            | P  | small, brave, rusty, polite           | march   | tower                  | lifted {his} visor
witch             | fP | young, kind, forgetful, old           | walk    | crooked house          | tugged her hat
wizard            | mP | old, forgetful, kind, young           | walk    | tower                  | tugged his beard
giant             | P  | gentle, shy, young, enormous          | stride  | mountain hall          | bent down low
robot             | -  | small, rusty, polite, silver          | roll    | workshop               | blinked {his} green lights
ghost             | F  | pale, shy, little, polite             | float   | empty house            | fluttered at the edges
snowman           | m  | round, cheerful, young                | slide   | snowy yard             | straightened his carrot nose
scarecrow         | -  | ragged, kind, straw-stuffed, lonely   | shuffle | field                  | rustled all over
fairy             | Ff | tiny, bright, young, forgetful        | flutter | foxglove               | shook her wings
mermaid           | Sf | young, green-eyed, curious            | glide   | cove                   | flicked her tail
pirate            | P  | small, one-eyed, cheerful, gruff      | stomp   | ship                   | tipped {his} hat
sailor            | P  | young, old, cheerful, salty           | stroll  | boathouse              | tipped {his} cap
clockmaker        | P  | old, patient, careful, young          | walk    | workshop               | polished {his} glasses
gardener          | P  | old, patient, sunburned, young        | walk    | cottage                | brushed off {his} knees
painter           | P  | young, dreamy, old, paint-spotted     | stroll  | attic room             | squinted with one eye
fiddler           | P  | thin, merry, young, wandering         | stroll  | caravan                | tapped {his} foot
miller            | P  | stout, floury, cheerful, old          | walk    | mill                   | dusted {his} apron
postman           | mP | tall, cheerful, punctual              | walk    | cottage                | patted his bag
teacher           | P  | kind, young, clever, tidy             | walk    | schoolhouse            | pushed up {his} glasses
farmer            | P  | old, sunburned, kind, stout           | walk    | farmhouse              | wiped {his} brow
potter            | P  | quiet, young, old, clay-spotted       | walk    | workshop               | wiped {his} hands
weaver            | P  | nimble, old, young, quiet             | walk    | cottage                | folded {his} hands
woodcutter        | P  | strong, quiet, young, kindly         | walk    | hut                    | set down {his} pack
cook              | P  | stout, cheerful, young, busy          | walk    | kitchen                | wiped {his} hands
cobbler           | P  | old, cheerful, bent, clever           | walk    | shop                   | tapped {his} heel
chimney sweep     | P  | young, sooty, cheerful, thin          | walk    | attic room             | rubbed the soot from {his} nose
inventor          | P  | young, absent-minded, clever, old     | hurry   | workshop               | scribbled on {his} sleeve
astronaut         | P  | young, brave, quiet                   | float   | space station          | tapped {his} helmet
explorer          | P  | bold, young, sunburned, old           | march   | tent                   | shaded {his} eyes
elf               | -  | small, quick, pointy-eared, young     | skip    | hollow tree            | twirled once
gnome             | -  | tiny, wrinkled, red-capped, grumpy     | march   | mushroom house         | tugged {his} red cap
troll             | -  | big, mossy, gentle, lonely            | stomp   | bridge                 | scratched {his} mossy head
goblin            | -  | small, green, mischievous, young      | scamper | cave                   | grinned from ear to ear
traveler          | P  | tired, young, merry, wandering        | walk    | inn                    | set down {his} pack
"""

# Nouns that appear now and then, so that the teller learns to take any word it is given.
RARE_ANIMALS = """
aardvark alligator alpaca anteater antelope armadillo axolotl baboon bison bobcat buffalo capybara caribou caterpillar
catfish centipede chameleon cheetah chicken chinchilla cobra cockatoo cod condor coyote crane cuckoo dinosaur dodo
dormouse dove dragonfly eagle eel egret elk emu falcon ferret finch firefly flamingo flea gazelle gecko gerbil gibbon
goldfish gopher gorilla grasshopper griffin grouse gull hamster hawk hermit crab hummingbird hyena ibex iguana jackal
jackdaw jaguar jay jellyfish kingfisher kiwi ladybug lark lemming lemur leopard llama lobster lynx mammoth marmot
marten meerkat mongoose moose mosquito mule muskrat newt nightingale opossum orangutan ostrich ox oyster panther
partridge pheasant phoenix pigeon pika platypus polar bear porcupine possum prawn puffin puma python quail reindeer
rhino salamander salmon scorpion sea lion seagull seahorse shark shrew shrimp sloth slug snake squid starfish
starling stoat swallow swift tadpole tapir termite trout tuna turkey viper vole vulture wallaby walrus warthog wasp
weasel werewolf wildcat wombat woodpecker worm yak yeti zebra
""".replace("hermit crab", "hermit_crab").replace("polar bear", "polar_bear").replace("sea lion", "sea_lion")
RARE_PEOPLE = """
acrobat actor admiral apprentice archer architect artist astronomer barber beekeeper blacksmith bookseller boxer
builder butcher captain carpenter child clown coachman dancer dentist detective diver doctor driver drummer duke
emperor engineer ferryman firefighter florist glassblower grocer guard gymnast hatter hermit innkeeper jester jeweler
judge juggler lady librarian locksmith magician maid mayor mechanic merchant miner minister monk musician neighbor
ninja nurse orphan outlaw page peddler photographer pianist pilgrim pilot plumber poet policeman president printer
professor ranger rider runner samurai scholar scientist sculptor singer skater soldier spy stonemason stranger student
surgeon swimmer teenager thief tinker toymaker trader uncle aunt vampire violinist waiter watchman whaler writer zombie zookeeper
"""

# What one meets in need: small, and in every story new to the hero.
LITTLE_ONES = """
mouse lamb kitten hedgehog sparrow duckling rabbit squirrel mole wren puppy frog snail goat piglet fawn chick calf
bear_cub chipmunk boy girl robin cricket old_man old_woman baker_boy shepherd_girl tortoise gosling
"""

# ---------------------------------------------------------------- names
SHE = """
Tilly Hazel Juniper Mabel Willow Poppy Clover Ivy Nettie Rosalind Fern Olive Maud Dora Bramble Pearl Wren Lottie Della
Minna Saffron Marigold Winnie Nell Tansy Blythe Edith Flora Greta Ida Josie Kit Luna Mira Nora Opal Petra Ruth Sorrel
Thea Una Violet Wilma Yara Zelda Alma Bettina Cora Elsie Freya Hattie Inga Juno Lark Marta Nina Odette Pippa Rosie
Sadie Tess Ursula Vera Wanda Alice Anna Bella Clara Daisy Emma Ella Grace Hannah Iris Jane Kate Lily Lucy Mary Maya Mia
Molly Ruby Sara Sophie Stella Zoe Ann Amy Barbara Carol Diana Elena Eve Fiona Gloria Helen Irene Jill Joan Julia Karen
Laura Linda Lisa Maria Martha Nancy Olivia Pam Rachel Rosa Sally Sandra Sarah Sue Susan Tina Valerie Wendy Yvonne
""".split()
HE = """
Pip Barnaby Otto Felix Moss Jasper Rowan Alder Bertram Cosmo Dobbin Edgar Finch Gus Hugo Ignatius Jonah Kip Linus Milo
Ned Oswin Percy Quill Rufus Silas Tobias Umber Virgil Walter Yorick Zeb Ambrose Basil Cedric Duncan Elmer Fergus Gideon
Horace Ivor Jem Lemuel Mortimer Nico Oren Piers Robin Sorley Theo Ulric Victor Wilbur Alfie Anton Bruno Casper
Emil Florian Harvey Jack Leo Max Oliver Oscar Sam Tom Toby Ben Charlie Daniel George Henry James Kevin Lucas Peter
Simon Thomas Tim William Adam Alan Alex Andrew Bill Bob Brian Carl Chris David Dennis Eric Frank Fred Gary Harry Ian
Jim Joe John Joseph Keith Larry Lewis Luke Mark Martin Matt Mike Nick Noah Patrick Paul Philip Ralph Ray Robert Roger
Steve Ted Tony Vincent Will
""".split()

# ---------------------------------------------------------------- where
# what a request calls it | where it is, in a sentence | a detail or two, separated by /
PLACES = """
pine forest  | at the edge of a pine forest       | The trees there smelled of rain and whispered even on still days. / Every evening the tall trees combed the wind.
village      | in a village of crooked chimneys   | It had one street, seven chimneys and a great many stories. / Everybody there knew everybody else's soup.
valley       | in a green valley                  | The clouds liked to sit down there and rest. / A brook ran through it, talking to itself.
river        | beside a slow brown river          | The river went by all day and never said where it was going. / In the mornings the fog sat on the water like a cat.
mountain     | high on a mountain                 | From there the villages looked like spilled crumbs. / Up there the stars came out early.
seaside      | on a windy shore                   | The gulls there complained about everything. / The sea turned its pages all night long.
island       | on a small round island            | One could walk all the way around it before breakfast. / The sea kept it company on every side.
meadow       | in a wide meadow                   | The grass there grew as high as a secret. / All summer long it hummed.
garden       | in an old walled garden            | The roses had forgotten who planted them. / Bees went in and out as if they paid the rent.
farm         | on a farm at the end of the road   | The gate there sang when it opened. / The barn leaned a little, as if it were listening.
harbor       | in a harbor full of small boats    | The masts clicked and clinked all day. / It smelled of salt, tar and fresh bread.
lake         | beside a still blue lake           | On quiet days the lake held a second sky. / The reeds there bowed to everyone.
snowy land   | in a land of snow                  | The winters were long there, and the soup was hot. / Snow lay on the roofs like thick white blankets.
hill         | on a round green hill              | The wind passed there each day at four. / From the top one could see tomorrow's weather.
desert       | at the edge of a golden desert     | The sand moved a little each night, like a sleeper. / At noon even the shadows hid.
jungle       | in a deep green jungle             | It rained there every day, and nobody minded. / Something was always singing there.
city         | in a city of tall houses           | Its windows lit up in the evening, one by one. / Its streets were as tangled as yarn.
castle       | near an old gray castle            | Ivy held its walls together. / Its bells were always a little late.
swamp        | in a misty swamp                   | The frogs there sang in three parts. / Everything there wore a coat of moss.
orchard      | in an apple orchard                | In autumn the apples fell all night, one by one. / In spring the trees wore white.
cave country | among the rocky hills              | The echoes there had very good manners. / The stones there kept the heat of the sun all night.
little town  | in a little town by the railway    | The clock there was always four minutes slow. / Each evening the last train hummed a tune.
birch wood   | in a birch wood                    | The white trunks shone even at night. / Its leaves fell like small gold coins.
canal        | by a quiet canal                   | Barges slid past as slow as clouds. / The water there was as green as bottles.
moor         | on a wide and windy moor           | The heather there turned purple in a single night. / There was nothing taller there than a sheep.
mill pond    | beside the mill pond               | The mill wheel counted the hours. / Willows trailed their fingers in the water.
crossroads   | by a lonely crossroads             | Four roads met there and said goodbye. / The signpost there pointed mostly at the sky.
market town  | in a busy market town              | On Saturdays it smelled of cheese and peppermint. / Its pigeons knew the price of everything.
"""

# Where something can be met, found or left.
SPOTS = """
the old mill | the crooked gate | the stepping stones | the mossy log | the stone bridge | the well | the hollow tree
the bend in the road | the apple tree | the blackberry hedge | the big flat rock | the haystack | the little waterfall
the signpost | the broken wall | the duck pond | the old bench | the foot of the hill | the three birches | the woodpile
""".replace("\n", " | ")

# ---------------------------------------------------------------- when
TIMES = {
    "spring": ["one [mild|windy|green] morning in spring", "on the first warm day of the year", "one April morning",
               "one spring day, when the [snowdrops|primroses] were out"],
    "summer": ["one [hot|golden|bright] summer morning", "on midsummer day", "one summer day, when the [hay|grass] was high",
               "one lazy afternoon in July"],
    "autumn": ["one [gray|windy|misty] morning in autumn", "on the day the first leaves fell", "one October afternoon",
               "one autumn day, when the [apples|chestnuts] were ripe"],
    "winter": ["one [cold|frosty|white] winter morning", "on the shortest day of the year", "one winter day, when the pond was frozen",
               "one snowy afternoon"],
    "any": ["one [bright|windy|quiet|misty|fine] morning", "one [Monday|Tuesday|Thursday|Sunday] morning", "one afternoon", "early one day",
            "one day, just after breakfast", "one [blue|gray] afternoon"],
}

# ---------------------------------------------------------------- what people are like
# trait | what that looked like / another
TRAITS = """
curious    | {^he} asked so many questions that even the wind grew tired. / {^he} looked under every stone, and then thanked the stone.
shy        | {^he} spoke so softly that people thought it was the grass. / When someone said good morning, {he} hid and waved.
dreamy     | {^he} often put {his} hat on upside down. / {^he} could watch a cloud until it was gone.
stubborn   | Once {he} had begun a thing, nothing could stop {him} but supper. / {^he} had never once turned back.
gentle     | Even the beetles came to {him} with their troubles. / {^he} never stepped on a daisy.
forgetful  | {^he} tied knots in {his} handkerchief and forgot what they were for. / {^he} once forgot {his} own birthday.
patient    | {^he} could wait for a kettle without looking at it once. / {^he} had all the time in the world, and shared it.
cheerful   | {^he} whistled even when it rained. / {^he} laughed in {his} sleep.
quiet      | {^he} listened more than {he} talked. / {^he} knew all the sounds of the night by name.
restless   | {^he} was always on the way to somewhere else. / Even {his} shadow had trouble keeping up.
careful    | {^he} counted everything twice. / {^he} always looked three times before crossing a brook.
kind       | {^he} always set out one cup too many, just in case. / Nobody left {his} door hungry.
hopeful    | {^he} was sure that something good was just about to happen. / {^he} kept one pocket empty for good luck.
brave      | {^he} was not afraid of thunder, only a little of spoons. / {^he} said hello to the dark.
proud      | {^he} brushed {his} coat one hundred times each morning. / {^he} did not like to ask for help.
clever     | {^he} could find the way out of any tangle. / {^he} had an answer for nearly everything.
sleepy     | {^he} could nap anywhere, even standing up. / {^he} said yawning was a kind of singing.
thoughtful | {^he} liked to think about the moon. / {^he} never said a thing before turning it over twice.
"""

# ---------------------------------------------------------------- what they wish
# to ... | short name for it, after "a wish" | on the way: where it is | arriving
WISHES = """
to see the sea                     | the sea        | beyond the last hill           | There lay the sea, wide and silver, breathing in and out. / There was the sea at last, as blue as a plum, going on forever.
to stand on top of the mountain    | the mountain top | above the clouds             | The whole world lay below, no bigger than a quilt. / From the top {he} could see seven valleys and the smoke of {his} own chimney.
to hear the echo answer            | the echo       | among the far rocks            | "Hello!" called {N}. "Hello!" the far rocks answered, and it sounded like a friend. / {N} called out {his} name, and the rocks sent it back three times, each time more kindly.
to find where the river begins     | the river's beginning | up beyond the woods     | There, under a fern, the river began: one clear drop, and then another. / And there was the beginning of the river, a spring so small that a leaf could hide it.
to see the northern lights         | the northern lights | far to the north          | Green and rose, the lights walked across the sky without a sound. / The whole sky unrolled like a ribbon of green silk.
to dance at the midsummer ball     | the midsummer ball | on the other side of the valley | The fiddles played, and {N} danced until {his} feet were too tired to stop. / Everyone made room, and {N} danced under the paper moons.
to visit {his} grandmother         | {his} grandmother | two valleys away            | "I knew you would come," said {his} grandmother, and she already had the cups out. / {^his} grandmother opened the door before {he} could knock.
to taste honey cake                | honey cake     | at the bakery over the hill    | The honey cake was warm, and it tasted the way summer sounds. / The first bite was so good that {he} had to sit down.
to see a shooting star             | a shooting star | above the open moor           | A bright line ran across the dark, and {N} forgot to breathe. / One star let go of the sky and flew, just for {him}.
to meet the old whale              | the old whale  | in the deep bay                | The old whale rose like an island and looked at {him} with one kind eye. / "Good evening, {N}," said the old whale, in a voice like a cello.
to see snow                        | snow           | up where the winter lives      | The first flake landed on {his} nose, and then the whole sky came down softly. / The snow lay smooth and blue, and nobody had written on it yet.
to hear the nightingale sing       | the nightingale | in the far wood               | The nightingale sang, and even the leaves kept still. / One silver note rose out of the dark, and then a hundred more.
to ride on a train                 | the train      | at the station beyond the fields | The train came in with a great sigh, and the driver helped {him} up. / Soon the fields were flying by the window like green birds.
to see the field of tulips         | the tulip field | behind the windmills          | There were more tulips than {he} could count, red and yellow, nodding hello. / The field burned with color from one end to the other.
to swim in the warm lake           | the warm lake  | down in the next valley        | The water was as warm as milk, and it held {him} up like a hand. / {N} floated on {his} back and counted the swallows.
to sleep one night under the stars | the stars      | out on the wide heath          | The stars came out one by one, until there was no room for more. / {N} lay in the grass, and the whole sky tucked {him} in.
to see the king's garden           | the king's garden | behind the silver gate      | Peacocks walked there, and the fountains spelled out names. / There were blue roses, and a gardener who waved.
to fly, if only once               | flying         | from the high cliff where the wind is kind | The wind took {him} under the arms, and for one whole minute {N} flew. / Up {he} went, over the treetops, laughing all the way.
to hear the great bell of the city | the great bell | in the city across the plain   | The great bell spoke once, and {N} felt it in {his} toes. / Its voice rolled over the roofs like slow gold thunder.
to see the circus                  | the circus     | in the field by the far town   | There were acrobats and trumpets, and a clown who bowed to {him} alone. / Under the striped tent the lights went up, and {N} held {his} breath.
to find the blue flower            | the blue flower | at the end of the long valley | There it stood between two stones, as blue as an evening. / The blue flower opened as {he} knelt beside it.
to see the moon up close           | the moon       | over the highest hill          | The moon was so near that {he} could have touched its cheek. / The moon rose right beside {him}, round and kind, and lit up {his} face.
"""

# ---------------------------------------------------------------- what they own
# kind: noun | size | adjectives | what it was like / or. Sizes: s fits a pocket, m is carried, l is rolled, pulled or pushed.
OBJECTS = {
"light": """
lantern     | m | brass, old tin, little, red          | Its flame was no bigger than a thumb, but it never went out. / It glowed like a small warm moon.
candle      | s | white, stubby, beeswax, tall         | It smelled of honey when it burned. / Its flame stood up straight, even in a draft.
lamp        | m | blue, copper, little glass, old      | It drew a circle of gold on every wall. / It hummed softly when it was lit.
torch       | m | bright, tall, pine                   | It crackled as if it were telling jokes. / Its flame leaned forward, eager to go.
night-light | s | small, china, star-shaped            | It gave just enough light to keep a dream company. / It was the color of butter.
moonstone   | s | pale, smooth, round                  | It drank the moonlight and gave it back in the dark. / It shone like milk with a secret in it.
firefly jar | m | round, green glass                   | The fireflies came and went as they pleased, but they always came back. / It twinkled like a tiny town at night.
""",
"sound": """
bell        | s | silver, small brass, round, old      | It had a voice as clear as cold water. / One ring of it could wake a whole street.
drum        | m | red, round, little, painted          | It said boom like a friendly giant. / It sounded like a heart that is happy.
flute       | s | wooden, silver, thin, reed           | It could sound like a bird or like rain. / Even the softest breath made it sing.
whistle     | s | tin, bright, wooden, little          | It was no longer than a finger, and louder than a goose. / It had two notes, one for hello and one for help.
trumpet     | m | golden, bright, dented               | It shone like a piece of the sun. / When it blew, even the hills stood up straight.
fiddle      | m | old, brown, sweet-voiced             | It remembered every song it had ever played. / It could make a stone tap its foot.
music box   | s | little, painted, silver              | It played one tune, and nobody ever tired of it. / When the lid went up, a tiny tune walked out.
horn        | m | curved, old hunting, brass           | Its call rolled over the hills like a barrel. / It was as deep as a well.
harp        | m | small, golden, carved                | Its strings were as fine as spider silk. / It sounded like water on stones.
harmonica   | s | shiny, dented, little                | It lived in a pocket and smelled of tin. / It sighed in one direction and laughed in the other.
accordion   | m | red, wheezy, old                     | It breathed in and out like a sleeping bear. / It could play a wedding and a thunderstorm.
tambourine  | m | jingling, ribboned, bright           | It jingled even when nobody shook it. / It sounded like a pocket full of stars.
""",
"warm": """
blanket     | m | blue, patched, soft, woolen          | It was as soft as a sleepy lamb. / It smelled of cedar and of home.
scarf       | m | red, striped, long, yellow           | It was so long that it went around {his} neck three times. / It always smelled of snow.
coat        | m | green, warm, patched, long           | It had nine pockets and a warm word in each of them. / It was a little too big, and just right for that.
quilt       | m | patchwork, old, bright               | Every square of it told a story. / It was sewn from a hundred old summers.
shawl       | m | gray, lace, soft, woolen             | It was as light as a cobweb and as warm as toast. / It had a fringe that tickled.
sweater     | m | blue, thick, knitted                 | It had been knitted with three kinds of wool and one kind of love. / It had a small hole at the elbow, for letting out the hiccups.
cloak       | m | dark green, long, velvet             | It moved like the evening. / It had a hood deep enough to dream in.
""",
"shelter": """
umbrella    | m | green, big black, yellow, patched    | It opened with a sound like a surprised bird. / Under it there was always room for one more.
parasol     | m | paper, pink, painted                 | There were cranes painted on it, flying in a ring. / It turned the sunlight rosy.
tent        | m | striped, small, old canvas           | Inside it every whisper sounded important. / It had a patch in the shape of a star.
sail        | m | white, patched, red                  | It still smelled of the sea. / It remembered every wind it had met.
""",
"rope": """
rope        | m | long, strong, coiled                 | It was long enough to go around a house. / It had never once let go.
ribbon      | s | blue, red, silk, long                | It fluttered like a small happy snake. / It was thin, but it was stronger than it looked.
ball of string | s | big, gray, tidy                   | Nobody knew how long it was, for nobody had ever come to the end. / It was as round as an apple.
ball of yarn | s | red, woolly, soft                   | It rolled ahead of {him} like a small red dog. / It was the color of poppies.
skipping rope | m | red-handled, long                  | It sang when it turned. / It had skipped a thousand thousand times.
vine        | m | green, strong, leafy                 | It was as tough as leather and it still had three leaves. / It smelled of rain.
""",
"dig": """
spade       | m | little, sharp, old                   | Its handle was smooth from a hundred years of hands. / It rang when it struck a stone.
shovel      | m | wide, red, rusty                     | It was rusty, but it was willing. / It had dug the first garden in the valley.
spoon       | s | silver, wooden, big, little          | It was worn thin from stirring. / {^he} could see {his} face in it, upside down.
trowel      | s | small, bright, garden                | It had a red handle and a hard nose. / It loved mud.
""",
"tool": """
hammer      | m | small, heavy, old                    | It had never missed a nail. / Its handle was as dark as tea.
toolbox     | m | red, battered, old                   | Everything in it had its own small bed. / It rattled like a cheerful skeleton.
saw         | m | sharp, singing, old                  | It sang as it worked. / It had a grin full of teeth.
wrench      | m | shiny, heavy, oily                   | There was no bolt that it could not persuade. / It smelled of oil and good ideas.
pot of glue | s | small, sticky, brown                 | One drop of it could hold a promise together. / It had a brush in its lid.
""",
"sew": """
needle      | s | thin, silver, sharp, golden          | It flashed in and out like a small fish. / It was so thin that it was almost not there.
thimble     | s | silver, tiny, dented                 | It fitted like a helmet on a very small knight. / It was no bigger than an acorn cup.
sewing basket | m | neat, wicker, old                  | It held every color of thread there is. / Inside it the spools lay like sleeping birds.
pair of scissors | s | small, sharp, golden            | It was shaped like a stork with a long beak. / It whispered when it cut.
""",
"food": """
pie         | m | warm, cherry, golden, blueberry      | Its crust was as gold as a wheat field. / Steam curled out of it like a question mark.
cake        | m | honey, tall, plum, birthday          | It had three layers and a smile of icing. / It smelled of vanilla and good news.
loaf of bread | m | warm, brown, crusty                | Its crust crackled like a small fire. / It was as warm as a sleeping cat.
jar of honey | m | golden, full, tall                  | It was like a lump of summer with a lid on. / It held ten thousand flowers.
apple       | s | red, shiny, golden, round            | It was so shiny that it seemed to laugh. / It had grown on the very top branch.
pumpkin     | l | big, orange, round                   | It was so round that it looked surprised. / It was as orange as a sunset.
pot of soup | m | hot, big, thick                      | It smelled of thyme and of coming home. / It bubbled like a happy pond.
cookie      | s | ginger, round, sugared               | It was as big as a saucer. / It had a raisin for a smile.
pear        | s | yellow, ripe, sweet                  | It was freckled like a friendly face. / It was so ripe that it sighed.
cheese      | m | round, yellow, holey                 | It had nineteen holes, and {he} knew each of them. / It was as round as a cartwheel.
pancake     | s | thin, golden, hot                    | It was as round as the moon and much warmer. / It was so thin that one could read through it.
peppermint  | s | striped, round, cool                 | It was striped like a barber's pole. / It tasted like a snowflake with a joke.
carrot      | s | crisp, long, orange                  | It was as long as an arm and as crisp as frost. / It still wore its green feathers.
basket of berries | m | full, sweet, red               | The berries shone like little lamps. / Each berry held one drop of July.
bowl of porridge | m | hot, blue, steaming             | It had a lake of honey in the middle. / It steamed like a small volcano.
""",
"look": """
telescope   | m | brass, long, old                     | It could bring the moon right into the room. / It unfolded with three soft clicks.
spyglass    | s | brass, small, pirate's               | It could find one white sail in a whole blue sea. / It had been around the world twice.
""",
"shine": """
mirror      | s | little, round, silver                | It kept a piece of the sky inside. / It told the truth, but kindly.
crystal     | s | clear, bright, six-sided             | It threw rainbows at everyone it met. / It looked like frozen laughter.
diamond     | s | tiny, bright, blue                   | It winked at everyone. / It held more colors than a garden.
prism       | s | glass, three-cornered                | It could take a sunbeam apart and put it together again. / It was full of hidden rainbows.
""",
"way": """
map         | s | old, folded, hand-drawn, yellow      | It had a lion drawn in one corner and a coffee stain in another. / Every path on it was drawn in red ink.
compass     | s | brass, small, trusty                 | Its needle trembled, and it was never wrong. / It always knew where the north was, even in the dark.
globe       | m | blue, small, spinning                | It squeaked whenever it passed Africa. / It held all the seas there are.
""",
"float": """
boat        | l | little, green, wooden, blue          | It bobbed like a duck on a string. / It had an eye painted on each side, to see where it was going.
raft        | l | log, little, flat                    | It was made of nine logs and a great deal of hope. / It was not pretty, but it had never sunk.
canoe       | l | bark, slim, red                      | It slipped along like a whisper. / It was as light as a leaf.
bathtub     | l | white, round, old                    | It had four lion's feet and no shame at all. / It floated as well as any ship.
""",
"roll": """
wagon       | l | red, little, squeaky                 | Its wheels said squeak, squeak, all the way home. / It was as red as a radish.
cart        | l | wooden, two-wheeled, old             | It had carried hay, turnips and once a piano. / It creaked in every language.
wheelbarrow | l | green, old, one-wheeled              | It wobbled, but it always got there. / It was as green as a frog.
bicycle     | l | blue, old, shiny                     | It ticked like a clock when it rolled. / It had a basket in front and a bell as bright as a lark.
sled        | l | wooden, fast, red                    | It went down hills like a swallow. / Its runners shone like two silver thoughts.
scooter     | l | yellow, quick, little                | It was as yellow as a lemon and as quick as a squirrel. / It purred on smooth stones.
""",
"fly": """
kite        | m | red, paper, yellow, blue             | It pulled at its string like a puppy. / It had a tail of seven bows.
balloon     | m | red, big, silver, round              | It bobbed over {his} head like a friendly thought. / It was as light as a laugh.
paper bird  | s | white, folded                        | It flapped its wings when one pulled its tail. / It was folded out of a single sheet.
""",
"carry": """
bucket      | m | tin, red, wooden                     | It had a dent in the shape of a duck. / It clanked like a small brave knight.
jug         | m | blue, clay, old                      | It had a lip like a friendly duck. / It kept the water cool all day.
cup         | s | blue, tin, chipped, china            | It had one chip, just where the lip goes. / It held exactly enough.
teapot      | m | brown, round, spotted                | It had a round stomach and a very short nose. / It never dripped, except when it laughed.
kettle      | m | copper, black, singing               | It sang when it was hot and sulked when it was not. / It was as round as an old aunt.
watering can | m | green, dented, tin                  | It rained wherever it went. / It had a long thin neck like a heron.
bottle      | s | green, small, glass                  | Held up to the light, it turned everything into a forest. / It had once carried a message.
bowl        | m | wooden, blue, deep                   | It was as round as a yawn. / It was carved from an old pear tree.
""",
"hold": """
basket      | m | wicker, round, willow                | It smelled of apples even when it was empty. / It creaked when it was happy.
bag         | m | leather, patched, blue               | It was always bigger on the inside than one thought. / It had been patched eleven times.
box         | m | wooden, little, carved               | Its lid closed with a soft little cough. / There was a star carved on the lid.
suitcase    | m | small, brown, old                    | It was covered with the names of towns. / It clicked open like two little gates.
backpack    | m | green, old, patched                  | It sat on {his} back like a friendly snail shell. / It had seven pockets, and there was a crumb in each of them.
""",
"charm": """
paper boat  | s | tiny, white, folded                  | It was folded from an old love letter. / It weighed no more than a wish.
mitten      | s | red, woolly, single, striped         | There had once been two of them, but this one was warm enough for both. / It had a thumb like a small mountain.
pinwheel    | s | bright, paper, spinning              | It turned even when there was no wind at all. / It spun until all its colors were one.
magnifying glass | s | round, silver, old              | It made an ant look like an elephant. / It could find the smallest thing there is.
fishing rod | m | long, thin, bamboo                   | It bowed very politely to the water. / It could reach farther than anyone thought.
button      | s | silver, blue, brass, wooden          | It had four holes and a tiny anchor on it. / It shone like an eye that has seen a lot.
marble      | s | green, glass, blue, swirling         | There was a small green storm inside it. / It rolled as if it knew where it was going.
shell       | s | white, pink, spiral                  | Anyone who held it to an ear could hear the sea. / It was as smooth as a kitten's ear.
feather     | s | blue, white, golden, gray            | It was so light that it seemed to be made of breath. / It had fallen out of the sky on a day without clouds.
pebble      | s | smooth, white, speckled              | It fitted in the hand as if it had always lived there. / It was as warm as an egg.
coin        | s | silver, copper, old                  | There was a ship on one side and a king with a big nose on the other. / It was worn smooth from being wished on.
ring        | s | golden, thin, silver                 | It was thin and plain and very bright. / It had a word written inside, too small to read.
crown       | m | golden, paper, little                | It sat a little crooked on every head. / It had five points, and one of them was bent.
locket      | s | silver, heart-shaped, old            | It opened with a sound like a kiss. / It held a picture no bigger than a ladybug.
medal       | s | bronze, round, shiny                 | It hung on a striped ribbon. / It said FOR TRYING in very small letters.
pearl       | s | white, round, tiny                   | It looked like a drop of moon. / It glowed as if it were thinking.
doll        | s | rag, wooden, little                  | She had one button eye, and it missed nothing. / She had been hugged quite flat.
teddy bear  | m | brown, one-eared, old                | He had lost an ear, but he was a very good listener. / He smelled of cookies.
spinning top | s | striped, wooden, humming            | It hummed like a bee that had swallowed a bell. / It could stand on one toe longer than any dancer.
toy soldier | s | tin, brave, painted                  | He stood very straight, although his paint was chipped. / He had never left his post.
puppet      | m | wooden, stringed, smiling            | It bowed whenever anyone looked. / It had a painted smile and real shoes.
wooden horse | m | painted, little, dappled            | It had a mane of real hair and a proud look. / It was ready to gallop at any moment.
snow globe  | s | round, glass, little                 | Inside it a tiny town waited for winter. / One shake, and it snowed on three small houses.
star        | s | tiny, golden, fallen                 | It had come down one night and never complained. / It was warm, and it ticked softly.
stone       | s | round, gray, striped                 | It was only a stone, but it had a white line all the way around. / It seemed to listen.
""",
"hat": """
hat         | m | blue, tall, straw, feathered         | It had a wide brim and a good opinion of itself. / It was as tall as a chimney.
cap         | m | red, woolen, striped                 | It had a bobble on top like a snowball. / It sat a little over one ear.
bonnet      | m | yellow, ribboned, old                | It was trimmed with paper cherries. / It tied under the chin with a bow as big as a butterfly.
helmet      | m | shiny, tin, dented                   | It made every thought ring a little. / It had a dent, and a story to go with it.
""",
"write": """
pencil      | s | short, yellow, red                   | It had been chewed at one end and was very wise at the other. / It was only a stub, but there were many words left in it.
pen         | s | silver, feather, blue                | It never made a blot, except when it was moved. / It wrote as smoothly as a skater.
piece of chalk | s | white, blue, small                | It was as white as a cloud and just as soft. / It squeaked when it told a lie.
crayon      | s | red, purple, blue                    | It was the exact color of evening. / It was worn round at the tip from drawing suns.
paintbrush  | s | soft, long, old                      | It made a line as light as a cat's step. / Its handle was spotted with every color it had known.
box of paints | m | wooden, bright, new                | Every color in it had its own small window. / It smelled of oil and rainbows.
""",
"read": """
book        | m | old, blue, thick, leather            | Its pages were soft from being turned. / It smelled of dust and adventures.
letter      | s | folded, blue, long-awaited           | It was sealed with a drop of green wax. / It had crossed three seas.
songbook    | m | red, little, old                     | It had a song in it for every day of the year. / It fell open by itself at the merry ones.
picture book | m | bright, big, worn                   | Its tigers were so well drawn that they seemed to breathe. / On the last page everybody was asleep.
""",
"grow": """
seed        | s | tiny, brown, striped                 | It was no bigger than a crumb, but it was full of plans. / It was as hard as a button.
acorn       | s | brown, smooth, little                | It wore its cap pulled down over its ears. / There was a whole tree folded up in it.
bean        | s | white, spotted, fat                  | It jumped a little when nobody was looking. / It was as smooth as an egg.
bulb        | s | round, brown, papery                 | It looked like an onion with a secret. / It was asleep, and it was dreaming of yellow.
""",
"flower": """
rose        | s | red, white, yellow                   | It smelled of June and of old letters. / It had seven petals and one small thorn.
sunflower   | m | tall, golden                         | It turned its face to anyone who smiled. / It was as tall as a gatepost.
daisy       | s | small, white                         | It was as white as a clean plate and twice as cheerful. / It had a yellow eye that never blinked.
tulip       | s | red, striped, purple                 | It closed every evening like a small door. / It stood as straight as a soldier.
flower pot  | m | clay, blue, cracked                  | In it grew one stubborn green thing with a yellow head. / It had a crack, and moss in the crack.
""",
"key": """
key         | s | golden, rusty, silver, tiny, old iron | It had teeth like a little comb. / It was as old as the hills, and it fitted more doors than one would think.
""",
"time": """
clock       | m | ticking, round, old                  | It had a moon painted on its face. / It ticked like a small polite woodpecker.
watch       | s | silver, gold, old                    | It ticked no louder than a beetle's walk. / It opened with a click and closed with a clack.
pocket watch | s | silver, heavy, engraved             | It hung on a chain as thin as a spider's thread. / It had never been late in its life.
hourglass   | m | tall, small, wooden                  | Its sand was as fine as flour and as pink as dawn. / It could hold one hour in its narrow waist.
alarm clock | m | round, red, loud                     | It had two bells for ears and a temper. / It hopped when it rang.
""",
"sweep": """
broom       | m | old, long, straw                     | It had swept up eleven autumns. / It stood in the corner and knew everyone's secrets.
brush       | s | soft, small, wooden                  | It tickled everything it cleaned. / It had fewer bristles every year, and each worked harder.
feather duster | m | blue, fluffy, bright              | It looked like a bird that loved housework. / It made spiders laugh.
""",
"soft": """
pillow      | m | white, soft, plump                   | It was as plump as a goose and full of old dreams. / It sighed when a head lay on it.
cushion     | m | red, velvet, round                   | It was as round as a full moon and much softer. / It had a tassel at each corner.
hammock     | m | striped, woven, wide                 | It hung between two thoughts like a smile. / It rocked whenever the wind asked.
""",
"reach": """
ladder      | l | long, wooden, old                    | It had thirteen steps, and the fourth one squeaked. / It was tall enough to tickle a chimney.
stool       | m | three-legged, little, wooden         | It had three legs and never quarreled about it. / It was just high enough for almost everything.
walking stick | m | knotty, long, oak                  | It had a bird's head carved on its handle. / It had walked farther than anybody {he} knew.
""",
}

RARE_OBJECTS = """
anchor antler anvil apron arrow bagpipe banjo barrel battery bead bench binder bone bookmark boomerang boot
bow bowtie bracelet brick brooch button_hook cage camera cane canvas cello chain chair chessboard chimney coconut comb
computer cork cradle croissant curtain dice dishcloth door doorbell doorknob drawer earring egg engine envelope eraser
fan fence fiddle_bow flag footprint fork fossil fountain frying_pan funnel gear glass glove goblet gong grape guitar
hairbrush hairpin handkerchief hoop horseshoe icicle idea inkwell jacket jewel jigsaw kazoo knot ladle laptop leaf
lemon lever lid lightbulb lock log lollipop magnet mailbox mandolin mask mattress microphone microscope mop muffin mug
mushroom nail napkin necklace net notebook nut oar onion orange organ paddle painting pan parachute passport patch peach
peg phone photograph piano pickle pinecone pipe plate plum pocketknife pocket poem postcard potato present puddle pump purse
puzzle quill radio rainbow rake record recipe refrigerator rocket rocking_chair rolling_pin ruler sandal sandwich
saucer saxophone scale scroll secret shadow shield shoe shoelace skate skateboard slipper snowball snowflake soap sock
sofa spark sponge stamp statue stocking stopwatch stove straw strawberry sundial swing sword table tambour
tail tape teacup teaspoon telephone television thread ticket tile toaster tomato tooth toothbrush towel tractor train
tree trombone trophy trousers_button trumpet_case trunk turnip typewriter ukulele vase violin wallet wand wardrobe
washing_machine waterwheel wheel whisk wig window windmill wing xylophone yo-yo zipper
"""
# Things that nobody has told a story about yet; anyone may ask for one, as a hero too.
ANYTHING = """
airplane airport album alarm algorithm ambulance apartment asteroid astrolabe atom attic avalanche avocado bagel bakery
balcony bandage barn bathroom bean_bag bed bedroom blender blueprint bookcase bridge bubble bulldozer bus cabin cabbage
cactus calculator calendar candy canal cannon car caravan carousel carpet casserole castle catapult cathedral cave
cereal chalkboard chandelier charger chocolate cinema circuit city clarinet cliff cloud clover cobweb coffee collar
comet comic committee compiler concert contract copier coral corner cottage cotton crane crate crater crayfish cucumber
cupboard cupcake cyclone database deadline desk dessert dictionary dinner dishwasher doughnut drill drone dumpling dune
echo eclipse elevator email emerald equation escalator essay factory farm faucet feast film flashlight floor flood fog
forest formula fridge frost galaxy garage garden garlic gate generator ghost_ship giggle glacier goggles goldmine grammar
gravity guidebook hailstorm hamburger headphones heater hedge helicopter highway hill honeycomb hospital hotel house
hurricane igloo internet island jam jar jeep jelly jetpack jungle kayak keyboard kitchen knife laboratory lake language
lawnmower lawyer library lift lighthouse lightning lizard_king llama_farm locomotive mango manual marathon market meadow
memory meteor milk mill minute mirage molecule monster moon moonbeam morning motor mountain museum muffin_tin neon
network newspaper night noodle notion number ocean office oven owl_pellet oxygen paintball pajamas palace palm paragraph
park particle pasta pebble_path pepper perfume petal photocopier photon pillowcase pinata pizza planet plank pocket_knife
pond popcorn porch printer prison program promise pudding pyramid question quiche quicksand radish railway raindrop
raspberry rice river robot_arm rooftop room router rubber_duck rug salad sandcastle sapphire satellite sauce school scooter_bell
sculpture sea seaweed sentence server sewer shampoo shed shelf ship shower sidewalk signal skeleton sky skyscraper smoothie
software soup spaceship spaghetti spell spider_web spoonful spreadsheet spring square stable stadium stair starlight station
steak steam storm street submarine subway sunbeam sunset supermarket swamp syrup taco tank taxi teaspoonful tennis_ball
theater thunder tide toilet toothpaste tornado tower toy traffic trampoline treadmill treasure tunnel turbine turtleneck
tuxedo unicycle universe vacuum_cleaner valley van vegetable video village vinegar virus vitamin volcano waffle walnut
water waterfall wave website weed whirlpool whisper wind winter wire wish wizardry word workshop yogurt zeppelin zero zoo
"""
RARE_LOOKS = [
    "There was not another one like it in the whole world.",
    "It was a little worn at the edges, like all good things.",
    "{^he} liked to look at it before {he} fell asleep.",
    "It seemed to be in a good mood at all times.",
    "Nobody knew who had made it, or when.",
    "It was older than the oldest tree, or so people said.",
    "Somebody had scratched a tiny star on the bottom of it.",
    "It was the very first thing anyone noticed about {him}.",
]
RARE_ADJECTIVES = "old little strange blue red golden curious green wonderful tiny yellow painted wooden silver purple".split()

# Where a thing comes from, unless its kind says otherwise.
ORIGINS = [
    "It had belonged to {his} [grandmother|grandfather|great-aunt].",
    "{^he} had found it [in the attic|under a hedge|on the beach] when {he} was very small.",
    "A [traveler|sailor|peddler] had given it to {him} [for a bowl of soup|in return for a song|one stormy night].",
    "{^he} had bought it at the market with [three coins and a smile|all {his} savings].",
    "It had been a birthday present, the best {he} ever had.",
]

# ---------------------------------------------------------------- quarrels, losses, fears, fairs
# How a thing is lost, what a helper noticed, where it is found and what stands in the way.
# sizes (w: what the wind can carry) | loss | clue | found and fetched | short: where it was
LOSSES = [
    ("s", "{^he} had [put it|carried it] in {his} pocket that morning, but by noon there was nothing in the pocket but a hole.",
     "I heard something small fall near {spot}",
     "And there by {spot}, deep in a [patch of nettles|thorny bush], [something winked|lay the {o}]. The leaves stung, but {H} [held them aside with a stick|bent them down carefully], and {N} pulled out the {o}.",
     "in the thorns by {spot}"),
    ("s", "{^he} [put|laid] it down on {spot2} for just a moment, and when {he} looked again, it was gone.",
     "I saw a magpie fly by with something in its beak. It has a nest by {spot}",
     "High in the tree by {spot} sat the magpie, and in its nest lay the {o}. \"I thought it was lonely,\" said the magpie. {H} [offered|gave] the bird a [shiny button|silver thread] instead, and down came the {o}.",
     "in a magpie's nest by {spot}"),
    ("s", "{^he} was crossing the brook when it [slipped from {his} hand|fell with a small splash], and the water carried it away.",
     "The brook brings everything to {spot} in the end",
     "There by {spot}, where the water turned around, something was [stuck between two stones|caught in the roots]. {N} could not reach it alone, so {H} [held on tight|took {his} hand], and {he} leaned out, farther and farther, until {he} had the {o}.",
     "in the brook by {spot}"),
    ("w", "A great gust of wind came around the corner, snatched it away and [tossed it over the hedge|carried it off over the roofs].",
     "The wind drops everything by {spot}, when it gets tired",
     "And so it was. By {spot}, high on a branch, hung the {o}. {N} climbed on {H}'s back and stretched until {he} could touch it. One pull, and down it came.",
     "up on a branch by {spot}"),
    ("sm", "{^he} had stopped to rest by {spot2}, and when {he} came home, {he} had forgotten it. {^he} ran back, but it was not there anymore.",
     "An old peddler picked it up. He was going to {spot}",
     "The peddler was sitting by {spot}, eating his lunch. \"I was looking for the owner,\" he said. \"What does it look like?\" {N} told him every scratch and spot of it, and the peddler [smiled|nodded] and held out the {o}.",
     "with an old peddler by {spot}"),
    ("sml", "In the morning it stood in its place, and in the evening the place was empty.",
     "I saw tracks in the mud. They went to {spot}",
     "They followed the tracks, and behind {spot} sat a very small goblin with the {o} in his lap. \"I only wanted to look at it,\" he whispered. \"Then come and look whenever you like,\" said {N}, and the goblin gave it back with both hands.",
     "with a small goblin behind {spot}"),
    ("l", "{^he} left it on the slope for just a moment. It began to move, slowly, and then not slowly at all, and then it was gone.",
     "Something rolled past me like thunder. It was going to {spot}",
     "By {spot}, upside down in a [ditch|heap of leaves], lay the {o}. It was too heavy for one. \"One, two, three!\" said {H}, and together they pulled it free.",
     "upside down by {spot}"),
    ("m", "It had stood by the door all night, and in the morning the snow had fallen so deep that nothing could be seen but white.",
     "Dig where the snow is humped like a cat. I saw a hump by {spot}",
     "By {spot} they dug and dug, until their fingers tingled. And there, under the snow, was the {o}. The storm had blown it all that way.",
     "under the snow by {spot}"),
]

# What a friend is given a present for.
OCCASIONS = [
    ("Tomorrow was {H}'s birthday", "Happy birthday", "it was {H}'s birthday"),
    ("That week {H} lay in bed with a cold and could not even laugh", "Get well soon", "{H} was ill"),
    ("{H} had been sad for three days, and nobody knew why", "This is for you", "{H} was sad"),
    ("{H} was going away on a long journey", "Take this with you", "{H} was going away"),
    ("{H} had just moved into a new home, and it was still quite empty", "Welcome", "{H} had a new home"),
]

# What a hero is afraid of | what it did | short
FEARS = [
    ("the dark", "The shadows grew long, and then they grew together.", "the dark"),
    ("thunder", "Far away the thunder rolled over in its bed.", "thunder"),
    ("deep water", "Below the little bridge the water was black and deep.", "deep water"),
    ("strangers", "There were strange faces on the road, and every one of them looked at {him}.", "strangers"),
    ("being alone", "Behind {him} the last house grew small, and there was nobody else on the road.", "being alone"),
    ("the big wood", "The big wood closed behind {him} like a door.", "the big wood"),
    ("the wind", "The wind howled in the chimneys and pulled at {his} ears.", "the wind"),
    ("high places", "The path climbed and climbed, until the treetops were below.", "high places"),
]
ERRANDS = [
    "{his} aunt was ill, and somebody had to bring her soup",
    "the flour was all gone, and somebody had to go to the mill",
    "a letter had to be carried to the other side of the hill",
    "{his} little brother had a fever, and somebody had to fetch the doctor",
    "the cow had wandered off, and somebody had to bring her home",
    "there was no firewood left, and the night would be cold",
]
FAIRS = {"spring": ("the spring fair",) * 2, "summer": ("the midsummer fair",) * 2, "autumn": ("the harvest fair",) * 2, "winter": ("the lantern-night fair",) * 2,
         "any": ("the great fair", "the village fair", "the Sunday fair")}
GRAND = ["a golden carriage", "a cheese as big as a door", "a singing statue", "a tower of glass", "a clock with forty hands",
         "a carpet with a thousand birds on it", "a ship made of sugar", "a dress with a hundred bows", "a machine that peeled eggs",
         "a sword with a ruby in it", "a hat with its own fountain"]

# Somebody's sorrow, and what a wish does about it.
SORROWS = [
    ("a mouse whose house had been washed away by the rain", "Where shall I sleep?", "there stood a little house with a red door and a lit window", "gave a mouse a new house"),
    ("an old bear who had not slept for nine nights", "I have forgotten how to sleep.", "a soft tune came out of nowhere, and the bear yawned so wide that the trees bent, and slept", "gave an old bear his sleep"),
    ("a bird with a broken wing", "I shall never fly again.", "the wing was whole, and the bird rose singing over the trees", "healed a bird's wing"),
    ("a boy whose mother was far away at sea", "I only want her to come home.", "a white sail came around the rocks, and someone on the deck was waving", "brought a boy's mother home"),
    ("an apple tree that had not had a blossom in years", "I am no use to anyone.", "the tree shook itself and stood white with blossom from top to toe", "made an old tree bloom"),
    ("a fiddler who had lost all his songs", "There is not one left in me.", "the songs came back over the hill like a flock of starlings", "gave a fiddler his songs back"),
    ("a little ghost who had nobody to talk to", "Everyone runs away.", "a second little ghost stood there, just as shy and just as pleased", "found a ghost a friend"),
    ("a goat whose bell had no voice", "My kids cannot find me.", "the bell rang out sweet and clear, and three kids came running", "gave a goat's bell its voice"),
    ("a well that had run dry", "All who come to me go away thirsty.", "cold bright water rose up to the rim", "filled a dry well"),
    ("a juggler whose hands had begun to shake", "I drop everything, even my hopes.", "seven golden balls rose into the air, and not one of them fell", "steadied a juggler's hands"),
]
# What the helped one does in return, to bring the hero to a wish after all.
RETURNS = [
    "In the morning there was a knock at the door. There stood all the neighbors with a [cart|sled|basket chair] and a picnic. \"We heard what you did,\" they said. \"Get in. We are going with you.\"",
    "But kindness travels faster than [wings|rain]. The next day a [goose as big as a horse|gray horse with a silver mane] stood at the door. \"I am to take you,\" it said, \"wherever you wished to go.\"",
    "But that night a [warm|gentle] wind came down the chimney. \"One good wish deserves another,\" it said, and it lifted {N} up as if {he} weighed nothing.",
    "\"You gave away your wish,\" said a voice. It was the old woman again. \"Then you must have mine. I never needed it.\" And she snapped her fingers.",
]

# A price that costs no money, and how it is paid: price | paid | short
PRICES = [
    ("a song that nobody has heard before", "{N} sat down by {spot} and listened. The water hummed, the reeds answered, and by evening {he} had a song that nobody had heard before.", "a new song"),
    ("a cup of morning dew", "Long before the sun was up, {N} was out by {spot}, shaking one drop from every spider's web, until the cup was full.", "a cup of morning dew"),
    ("seven white feathers", "By {spot} {N} met the geese. They gave {him} seven white feathers, one for each good joke {he} told them.", "seven white feathers"),
    ("a story with a happy ending", "All day {N} sat by {spot} and thought. At sunset the geese flew home, and there it was: a story with a happy ending.", "a story"),
    ("something that gets bigger when you share it", "{N} asked everyone, but nobody knew. Then, by {spot}, a child laughed, and {he} laughed too, and soon the whole road was laughing. \"A laugh!\" cried {N}. \"It gets bigger when you share it.\"", "a laugh"),
    ("one honest day of work", "So {N} worked. {^he} swept the yard by {spot}, stacked the wood and fed the hens, and when the moon came up {he} was tired and proud.", "a day of work"),
    ("a smile from the grumpiest person in town", "The grumpiest person in town sat by {spot} and scowled. {N} did not say a word. {^he} just sat down too and shared {his} lunch, and by the last crumb there was a smile, small but real.", "a smile"),
    ("a jar of moonlight", "That night {N} went to {spot} with an empty jar. {^he} held it under the moon and did not move, not even when {his} nose itched, until the jar was full to the brim.", "a jar of moonlight"),
]

ADVICE = [
    "Take small steps, and do not count them",
    "When you do not know what to do, look at what you have in your hands",
    "The longest road is only one step wide",
    "If you are afraid, sing a little",
    "Trust the small things, for they are seldom proud",
    "Go gently, and the road will be gentle too",
    "What you carry will carry you",
    "Nobody is too small for a long road",
    "Keep the wind at your back and a crumb in your pocket",
    "Ask the way of everyone, and thank them twice",
]
MANNERS = "kindly gravely softly cheerfully gently gruffly quietly wisely".split()
