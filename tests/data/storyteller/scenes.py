"""What each kind of thing is good for: the turning points of the stories.

For every kind of object (the keys of `world.OBJECTS`):

    way    obstacles on the hero's way:       problem | use | short problem | short use | flags
    need   somebody else, {aw}, in trouble:   problem | use | short problem | short use
    love   why its owner is fond of it
    miss   what an owner says who has lost it
    draw   what a stranger says who was drawn by it
    broke, mended   how it breaks and how it is whole again; kinds without these do not break
    ends   last lines

The short forms complete "On the way ..., but ..." and "{^aw} ..., and {N} ...". Flags: F or S, no obstacle to one who flies or swims;
N, not at a fair. Last lines: + needs a friend at hand, * needs the thing to have been used.
"""

SCENES = {
"light": dict(
    way="""
[Halfway there|Before {he} was halfway], the sun went down, and the path [slipped away into the dark|vanished under the trees]. | {N} [lifted|held up] the {o}. Its light ran ahead over the [stones|roots], and [step by step|little by little] the path came back. | night fell and the path vanished | the {o} lit every step
The way led through a [long|deep] cave, so dark that {N} could not see {his} own [feet|nose]. | {^he} [raised|held out] the {o}, and the walls [woke up and glittered|shone like a sky full of stars]. It was only a cave, and a pretty one. | the way led through a black cave | in the light of the {o} the walls glittered like stars
A [thick|white] fog came up from the river and swallowed the [road|trees] whole. | {N} held the {o} out in front and walked slowly. In that small round of gold {he} could see just one step, and then another, and that was enough. | a fog swallowed the road | the {o} showed one step and then another
""",
    need="""
[Down in the hollow|Between the dark trees] {aw} was turning round and round. "I can't find my way home!" [cried|sobbed] the {w}. | {N} held the {o} high. "[Walk beside me|Stay close to the light]," {he} said, and together they followed the small golden light to the {w}'s own door. | was lost in the dark | lit the way home with the {o} | N
{^aw} was leaning over a dark well. "[My mother's ring|The key to my house] fell in," said the {w}, "and I can't see it." | {N} let the {o} down on a string. Far below, something [winked|sparkled]. With a bent stick and a little patience they fished it up. | had lost something dear in a dark well | lit up the bottom with the {o}
Out on the water a small boat was going round in the dark. "Where is the shore?" called {aw}. | {N} ran to the end of the pier and swung the {o} from side to side. The boat turned toward the light, and soon the {w} stood on dry land. | was adrift in the dark | swung the {o} until the boat came in | N
""",
    love="""On dark evenings it turned the whole room to gold. / {^he} lit it every evening and told it the news of the day. / When it was lit, the dark sat down quietly outside the door.""",
    miss="""Without it I cannot find my own door at night / It stood in my window, so that my son could find the harbor""",
    draw="""I saw your light from far away / I was lost, and then I saw a light""",
    broke="One evening it fell from the shelf, and its light went out, and it would not come back",
    mended="it gave one blink, and then it shone as it always had",
    ends="""And on dark nights the {o} still shines in {his} window, in case somebody is lost. / That night {N} put out the {o}, and the stars went on without it. / +And whenever the dark comes early, they light the {o} and tell this story."""),

"sound": dict(
    way="""
A fog came down, so thick that {N} could not see {his} own [feet|nose]. | {N} stood still and played the {o}. Far ahead somebody called, "This way! This way!" and {he} followed the voice out of the fog. | a thick fog came down | the sound of the {o} brought an answer
A [big|grumpy] [goose|dog] stood in the middle of the road and would let nobody pass. | {N} took up the {o} and played the merriest tune {he} knew. First one [foot|leg] began to tap, then another, and {he} danced by with a bow. | a grumpy beast blocked the road | a tune on the {o} made it dance
The ferryman was [asleep|snoring] on the other side of the [wide|deep] river, and no shout could wake him. | So {N} sounded the {o}. It rang out over the water, once, twice, and the ferryman sat up, rubbed his eyes and came across. | the ferryman was asleep across the river | the {o} woke him | FS
""",
    need="""
{^aw} was crying in the tall grass. "I can't see [my mother|my brothers] anywhere," sobbed the {w}. | {N} climbed on a stone and played the {o} as loudly as {he} could. The grass began to rustle, and out [ran|came] the {w}'s whole family, all talking at once. | had lost the family in the tall grass | called them together with the {o}
Smoke was rising from the [barn|hayloft], and {aw} was inside, fast asleep. | {N} sounded the {o}, loud and long, until the {w} woke and ran out, and the neighbors came with buckets. | was asleep in a burning barn | sounded the {o} until everyone woke | N
{^aw} sat on a stone and could not stop crying, and did not know why. | {N} did not ask. {^he} played the {o}, very softly, a tune like rain on leaves. By the last note the {w} was smiling. | could not stop crying | played the {o} until the tears stopped
""",
    love="""Every evening {he} played it for the stars. / When {he} played it, the birds stopped to listen. / It made even a Monday sound like a holiday.""",
    miss="""Without it my house is so quiet that I can hear the dust / I play it every night, so that the children can fall asleep""",
    draw="""I heard your music over the hill / I was walking by, and my feet turned around all by themselves when I heard it""",
    broke="One day it fell on the stones, and after that it would not make a sound",
    mended="it sang out, a little deeper and sweeter than before",
    ends="""And if you listen on a still evening, you may hear the {o}, far away. / +That night they played until the moon went down. / And to this day the {o} can be heard there, whenever somebody is sad."""),

"warm": dict(
    way="""
The wind turned [cold|sharp], and it began to [snow|sleet]. {N} shivered from head to toe. | {^he} [wrapped|pulled] the {o} tightly around {him}, and it was like [a hug|stepping into a warm kitchen]. The wind blew as hard as it could, and then it gave up. | an icy wind began to blow | the {o} kept the cold away
Night caught {him} on the open hill, with frost on every blade of grass. | {N} curled up under the {o} and slept as warm as a [loaf of bread|chick under a hen]. In the morning {he} shook off the frost and went on. | a frosty night caught {him} on the hill | the {o} kept {him} warm until morning
At the pass sat the North Wind himself, blowing on his fingers. "[Nobody gets by|Go back]," he said. "I am in a bad mood. I am always cold." | {N} put the {o} around his thin shoulders for a while. Nobody had ever done that before. "Well then," said the North Wind, much more softly, "pass." | the North Wind barred the way | the {o} made him warm and kind
""",
    need="""
Under a [bare|snowy] bush sat {aw}, shaking with cold. "I c-c-can't feel my [nose|toes]," said the {w}. | {N} wrapped the {w} up in the {o} until only two eyes looked out. Slowly the shaking stopped, and then there was a sigh. | was shaking with cold | wrapped the {o} around the poor thing | N
{^aw} had fallen through the ice and crawled out again, dripping and blue. | {N} pulled the {o} tight around the {w} and rubbed and rubbed, until both of them were warm. | had fallen through the ice | rubbed the poor thing warm with the {o} | N
High on a ledge sat {aw} and did not dare to come down. "Jump!" called everyone, but it was too far. | "Hold the corners!" cried {N}, and they stretched out the {o} like a sheet. The {w} shut both eyes, jumped, bounced once, and was safe. | did not dare to jump from a ledge | caught the jumper in the {o}
""",
    love="""On cold mornings it was like a second breakfast. / {^he} wore it in the wind, in the snow and sometimes in bed. / It held on to the warmth of every winter.""",
    miss="""Without it the winter comes right into my bones / My mother made it, and it still smells of her kitchen""",
    draw="""I was cold, and it looked so warm / I saw it moving in the wind, and I thought it was waving to me""",
    broke="Then it caught on a nail, and a long tear ran right down the middle",
    mended="it was warm and whole again, with a row of stitches like a smile",
    ends="""+And when the cold came back, there was room under the {o} for two. / The {o} grew old and thin, but it never grew cold. / That night {N} pulled the {o} up to {his} chin and smiled."""),

"shelter": dict(
    way="""
[Halfway there|Before long] the sky turned black, and the rain came down in [ropes|buckets]. | {N} [spread|put up] the {o} and sat under it, dry as a biscuit, while the rain drummed overhead. When it was tired, {he} went on. | the rain came down in ropes | the {o} kept {him} dry
The sun burned down on the bare white road, and there was not one tree. | {N} spread the {o} and walked along in a little round shadow of {his} own. | the sun burned and there was no shade | the {o} made a shadow of its own
At the top of the hill the wind was so strong that it pushed {him} back two steps for each one. | {N} turned around, spread the {o}, and let the wind do the work. It blew {him} right along the ridge, laughing. | a great wind pushed {him} back | with the {o} {he} let it carry {him} | F
""",
    need="""
{^aw} stood in the pouring rain with a basket of [kittens|eggs|books] and nowhere to go. | {N} spread the {o} over them both, basket and all. They stood there, shoulder to shoulder, until the rain had finished. | was out in the pouring rain | spread the {o} over both of them
A nest had been blown half out of its tree, and {aw} was trying to keep the rain off three small eggs. | {N} climbed up and fixed the {o} over the branch like a roof. All night the rain drummed on it, and in the morning there were three small beaks. | could not keep the rain off a nest | made a roof of the {o} | N
{^aw} was sitting on a rock in the middle of the flood. "The water is rising!" cried the {w}. | {N} turned the {o} upside down, climbed in and paddled out. It was a tight fit for two, and a wobbly one, but it floated. | was caught by the flood | turned the {o} into a boat | N
""",
    love="""{^he} liked the rain, because then {he} could use it. / It had kept off rain, hail and once a falling pear. / Under it, even a storm was cozy.""",
    miss="""Without it every cloud rains on me alone / I have sat under it with everyone I ever loved""",
    draw="""It was raining, and yours was the only dry place / I saw its bright color through the rain""",
    broke="Then a storm turned it inside out, and it hung there like a broken wing",
    mended="it opened as softly as a flower",
    ends="""And when it rained, there was always room for one more under the {o}. / Since then nobody there has minded the rain. / That night it rained on the roof, and {N} slept with one hand on the {o}."""),

"rope": dict(
    way="""
The bridge was gone. Below, the [river|stream] [roared|tumbled] over the rocks. | {N} threw one end of the {o} across, and it caught on a [stump|branch]. {^he} pulled twice, held on tight and swung over with {his} eyes shut. | the bridge was gone | the {o} carried {him} across | FS
A steep wall of rock stood in the way, as smooth as [glass|an egg]. | {N} made a loop in the {o} and threw it over a [pine|stone] high above. Then {he} climbed, hand over hand, and did not look down. | a steep rock stood in the way | the {o} helped {him} climb it | F
The path split in two, and then in two again, like a tangle of roots. "I shall never find my way back," thought {N}. | So {he} tied one end of the {o} to a tree and let it run out behind {him}. Now {he} could follow any path and still come back. | the paths ran into a maze | the {o} marked the way back
""",
    need="""
From the bottom of a deep hole came a voice. It was {aw}. "I fell in!" called the {w}. "Help!" | {N} tied the {o} to a tree and let it down. "[Hold on|Hold tight]!" {he} called, and pulled, and pulled, until the {w} stood blinking in the sun. | had fallen into a deep hole | pulled the poor thing out with the {o}
A raft was drifting away down the river with {aw} on it. | {N} ran along the bank and threw the {o}. Once it fell short. Twice it fell short. The third time the {w} caught it, and {N} pulled the raft ashore. | was drifting away down the river | threw the {o} and pulled | N
The old goat's kids kept straying in the mist, and {aw} had to mind them all alone. "I keep losing count," said the {w}. | {N} tied them together with the {o}, one behind the other like beads. So they all came home, and not one was missing. | could not keep the kids together in the mist | tied them in a row with the {o} | N
""",
    love="""{^he} could tie eleven knots in it and untie twelve. / Whatever came apart, it held together. / One never knew what it would be good for next.""",
    miss="""Without it I cannot tie up my boat / I use it to hold everything together, even myself""",
    draw="""I followed it all the way from the road to your door / I saw it fluttering there, like a wave of the hand""",
    broke="Then one day it was pulled too hard, and it snapped right in two",
    mended="it was whole again, and the knot was the strongest part of it",
    ends="""+And what was tied together that day never came apart. / The {o} still hangs by {his} door, ready for anyone who falls into anything. / For a long {o}, they say, is a long arm."""),

"dig": dict(
    way="""
A great heap of earth had slid across the road, and there was no way around. | {N} took the {o} and began to dig. It took all [morning|afternoon], one bite at a time, but at last there was a hole just big enough, and {he} crawled through. | earth had slid across the road | with the {o} {he} dug a way through
A [high|thick] hedge of thorns grew across the way, and it had no gate. | "If not over, then under," said {N}, and dug with the {o} until there was a small tunnel. {^he} came out on the other side with leaves in {his} hair. | a hedge of thorns grew across the way | with the {o} {he} dug a tunnel under it | F
The day was hot, and the [spring|well] by the road was dry. {N} was so thirsty that {he} could not whistle. | {^he} took the {o} and dug where the moss was green. The hole grew damp, then wet, and then clear water came up and filled it. | {he} was thirsty and the spring was dry | with the {o} {he} dug down to water
""",
    need="""
There was a knocking under the ground. "Hello?" called {aw} from below. "My tunnel has fallen in!" | {N} dug as fast as {he} could with the {o}, and the earth flew. Soon there was a hole, and out of it came a nose. | was shut up under the ground | dug the poor thing out with the {o}
The snow had fallen all night, and {aw} could not open the door. "I am snowed in," called the {w} through the keyhole. | {N} took the {o} and dug a path from the gate right up to the door, with a neat little wall on each side. | was snowed in | dug a path to the door with the {o} | N
The brook had overflowed, and the water was creeping toward the house where {aw} lived. | {N} dug a ditch with the {o}, straight through the grass. The water turned its head, sniffed, and ran off down the ditch instead. | was about to be flooded | dug a ditch with the {o} | N
""",
    love="""{^he} was sure that one day it would find a treasure. / With it {he} planted potatoes in spring and made castles in summer. / It was always a little muddy, and always glad.""",
    miss="""Without it I cannot plant my beans / My father dug our garden with it""",
    draw="""I saw it standing there, and I thought: here lives somebody who is not afraid of work / I saw the neat holes in your garden, and I had to know what they were for""",
    broke="One day it hit a stone, and its handle broke right off",
    mended="it was as strong as ever, with a new handle of ash wood",
    ends="""*And where the earth was turned that day, the first daisies grew. / The {o} is still there, a little muddy, waiting for the next good deed. / +Who digs with a friend, they say, always finds a treasure. / And every year the beans there come up a day early."""),

"tool": dict(
    way="""
The little bridge had lost its planks, and there was nothing but air between the posts. | {N} found some boards in the reeds, took the {o} and set to work. Before the sun had moved a hand, there was a bridge again, and {he} walked over it. | the bridge had lost its planks | with the {o} {he} mended it | FS
By the road stood a coach with a broken wheel, and it blocked the whole way. | "Let me," said {N}, and brought out the {o}. Soon the wheel was as good as new, and the coachman gave {him} a ride. | a broken coach blocked the way | with the {o} {he} mended its wheel
The gate was shut, and its lock was stuck with a hundred years of rust. | {N} took the {o} and worked at the hinges, patiently, one after the other. With a long yawn the gate came open. | a rusty gate was stuck | with the {o} {he} got it open | F
""",
    need="""
{^aw} stood in front of a house with no roof. "The storm took it," said the {w}, "and tonight it will rain." | {N} took the {o}, and they worked side by side until the first drop fell. It fell on a fine new roof. | had lost the roof in a storm | mended it with the {o} | N
The wheel of the mill had stopped, and {aw} had no flour left for bread. | {N} climbed in among the beams with the {o}. Knock, creak, knock. Then the wheel sighed and began to turn. | had a mill that would not turn | mended the wheel with the {o} | N
{^aw} was sitting beside a boat with a hole in it. "Now I can't get home across the water," said the {w}. | {N} found a good piece of wood, took the {o} and mended the hole so well that not a drop came in. | had a hole in the boat | mended it with the {o} | N
""",
    love="""With it {he} had mended every chair in the street. / Nothing stayed broken for long where {he} lived. / {^he} believed that everything can be mended, if one begins.""",
    miss="""Without it my roof drips and my door hangs crooked / I built my house with it""",
    draw="""I heard the sound of work, and I like that sound / My wheel is broken, and people said that you have just the thing""",
    broke=None, mended=None,
    ends="""And whatever breaks there is mended before supper. / The {o} lies in its old place, and it is never there for long. / *What {he} mended that day has held ever since."""),

"sew": dict(
    way="""
In the middle of the lake the sail of the ferry tore from top to bottom. "Now we are stuck," said the ferryman. | "Not yet," said {N}, and took out the {o}. Stitch by stitch the sail closed up, and the wind filled it again. | the ferry's sail tore | with the {o} {he} sewed it up | FS
At the gate sat a giant, crying into his sleeve. "My [coat|shirt] is torn," he said, "and nobody can pass until I feel better." | {N} climbed up on his knee with the {o} and sewed, and sewed. It was a small mend in a very big [coat|shirt], but the giant beamed and opened the gate. | a sad giant sat in the gate | with the {o} {he} mended what was torn
A branch caught {his} pack and ripped it open, and everything rolled down the hill. | {N} gathered it all up again, sat down in the moss and took out the {o}. Soon the pack was whole, and better than before. | {his} pack ripped open | with the {o} {he} made it whole
""",
    need="""
{^aw} was hiding behind a tree. "Today is my [sister's wedding|first day of school]," said the {w}, "and my best [shirt|coat] is torn!" | "Hold still," said {N}, and took out the {o}. Snip, stitch, knot, and the tear was gone. In its place there was a small embroidered star. | had torn the best clothes of all | mended them with the {o}
{^aw} held up a rag bear with no stuffing left. "He's empty," said the {w}, "and he can't sleep like that." | {N} filled the bear with sheep's wool from the hedges, took out the {o} and closed him up again. He was fatter now, and he looked pleased. | had a bear with no stuffing | mended him with the {o}
The wind had torn the tent of the traveling players, and {aw} stood in front of it in tears. | {N} set to work with the {o}. The tear was as long as a street, but so was the day, and when the lamps were lit the show could begin. | had a torn tent | sewed it up with the {o}
""",
    love="""With it {he} had mended half the socks in the valley. / {^he} said that every tear is only a seam that has not met a friend. / It made small things whole.""",
    miss="""Without it all my elbows look out of my sleeves / With it my mother sewed my first coat""",
    draw="""I have a hole in my pocket, and people said that you mend things / I saw it glinting in your window""",
    broke=None, mended=None,
    ends="""*And the stitches are there to this day, small and straight. / Since then nobody there has had cold elbows. / And with the very last bit of thread, {N} sewed this story together."""),

"food": dict(
    way="""
A [thin|hungry] wolf stepped out from behind a tree. "I have not eaten since Sunday," he said. | {N} [swallowed hard|thought for a moment], and then {he} held out a piece of the {o}. The wolf ate it very politely. "Nobody ever shared with me before," he said, and walked beside {him} all the rest of the way. | a hungry wolf stepped out | {N} shared the {o} and the wolf became a friend
At the bridge sat a troll with a rumbling stomach. "Nobody crosses," he growled. "I am too hungry to be nice." | {N} gave him half of the {o}. The troll chewed, and with every bite his frown grew smaller. "Go on," he said, and brushed off the crumbs. "And be careful, the third plank is loose." | a hungry troll guarded the bridge | half of the {o} made him smile | FS
[Halfway there|Before long] {his} legs would not go any farther. {^he} was so tired and hungry that even the [stones|clouds] looked like buns. | {N} sat down and tasted the {o}, just a small piece. It went right down into {his} feet, and they began to walk again all by themselves. | {he} grew too hungry to go on | one piece of the {o} gave {him} strength
""",
    need="""
By the road sat {aw} with an empty [plate|bag]. "I have had nothing all day," said the {w}, "except a drink of water." | {N} had looked forward to the {o} all morning. But {he} cut it in two and gave away the bigger half. | had nothing to eat | shared the {o}
{^aw} had run a long way with a message and could not run another step. | {N} held out the {o}. "Eat first," {he} said. After the last bite the {w} jumped up with shining eyes and was off like the wind. | was too weak to run on | shared the {o} | N
{^aw} had shut the door and would not come out. "Nobody likes me," said the {w} through the keyhole. | {N} put the {o} down on the doorstep and waited. The smell went in under the door. First a nose came out, and then the rest, and they ate it together. | would not come out of the house | coaxed with the {o} | N
""",
    love="""{^he} had made it {himself}, and had only burned one finger. / It smelled so good that the neighbors opened their windows. / It was the best that anyone had made that year.""",
    miss="""I made it for my children, and they have been so good / It was for my sister's wedding, and the guests are already here""",
    draw="""I was hungry, and my nose brought me here / Something smelled wonderful, all the way down to the road""",
    broke=None, mended=None,
    ends="""*And nothing has ever tasted as good as that one shared bite. / *In the end only crumbs were left, and the birds had those. / For what is shared, they say, fills you twice.""",
    origins="""{^he} had made it that very morning. / It was a present from the baker, for carrying flour. / It had won a prize, and there was only one. / {^his} grandmother had taught {him} how to choose the very best."""),

"look": dict(
    way="""
At the crossroads there were four roads, and the wind had blown the signs away. | {N} climbed on the milestone and looked through the {o}. There, far off and very small, {he} saw exactly the right road. | the signs had blown away | through the {o} {he} saw the right road
Something huge and dark stood on the path, with its arms held up. {N} did not dare to move. | Then {he} looked through the {o}. It was only an old tree with a crow's nest for a hat, and {he} laughed and went on. | something dark stood on the path | through the {o} {he} saw that it was only a tree
The trail was so faint that no eye could follow it. | {N} knelt down and looked through the {o}. Here was a bent blade of grass, and there half a footprint, and so {he} read the trail like a book. | the trail was too faint to see | the {o} made it clear
""",
    need="""
"My little sister has wandered off," cried {aw}, "and the heath is so big!" | {N} put the {o} to one eye and looked, slowly, from left to right. "There!" {he} said. "A red cap, by the far rocks." And they ran. | could not find a lost sister | found her with the {o} | N
{^aw} was crawling in the grass. "I dropped my grandmother's pearl," said the {w}, "and it's as small as a seed." | {N} knelt down with the {o}, and together they searched, blade by blade. "What is this," {he} said, "that shines like a drop of milk?" | had dropped a tiny pearl | found it with the {o}
Every evening {aw} sat on the rocks and waited for a ship. "It will never come," said the {w}. | "Look through this," said {N}, and gave the {w} the {o}. Far out, where nobody could have seen it, there was a sail, and on the sail a star. | was waiting for a ship | showed the far sail through the {o} | N
""",
    love="""Through it {he} had seen the hairs on a bee's knees. / Every evening {he} looked at the world and found it bigger. / With it nothing was too far or too small to be interesting.""",
    miss="""Without it I cannot see my sweetheart's house across the bay / I have counted the stars with it for fifty years, and I was nearly done""",
    draw="""I saw something flash up here, and I wondered who was looking / I wanted to ask what you can see through it""",
    broke="Then it rolled off the table, and after that everything in it was gray and blurred",
    mended="the world in it was round and bright again",
    ends="""+And some nights, with the {o}, you can see them sitting there, looking back at you. / Since then {N} has always looked twice. / +There was still so much to see, and now there were two to see it."""),

"shine": dict(
    way="""
A dark hall of rock lay before {him}, and nobody had ever found the way through. | {N} caught one sunbeam in the {o} and sent it into the dark. It ran from wall to wall and stopped at a small door. | a dark hall of rock lay before {him} | the {o} threw a sunbeam on the door
The river was wide, and the ferry was on the far side, no bigger than a bean. | {N} turned the {o} in the sun. Flash, flash, flash! The ferryman saw it and came across. | the ferry was far away | a flash of the {o} called it | FS
A grumpy ogre sat on the path with his back to everyone. "Go away," he said. "I am ugly." | {N} held up the {o}, and a spot of light fell on the ogre's face. "But your eyes are as green as spring!" {he} said. Nobody had ever told him. He blushed and stepped aside. | a grumpy ogre sat on the path | the light of the {o} showed how green his eyes were
""",
    need="""
"Something is glowing under my bed," whispered {aw}. "I think it's a monster." | {N} took the {o}, caught the light of the window in it and sent it under the bed. There sat one sock and one very surprised beetle. | was afraid of a monster under the bed | lit the place up with the {o} | N
{^aw} lay in bed, too ill to go out. "I haven't seen the sun for a week," said the {w}. | {N} stood in the garden and turned the {o} until a patch of sunlight jumped through the window. It danced over the ceiling, and the {w} laughed out loud. | was too ill to see the sun | sent it in with the {o} | N
The flowers of {aw} grew in a dark corner, and they hung their heads. | {N} put the {o} on the wall across from them, just so. Every day at noon it sent them an hour of sun, and one by one they looked up. | had flowers that never saw the sun | sent them light with the {o} | N
""",
    love="""In the morning it threw small suns on the ceiling. / {^he} liked to catch the light in it and let it go again. / It could make a gray day look twice.""",
    miss="""Without it there are no rainbows in my kitchen / It was the last thing my mother gave me""",
    draw="""Something winked at me from your window / A spot of light jumped on my nose, and I followed it""",
    broke="Then it slipped and fell, and a crack ran right across it",
    mended="it shone again, and where the crack had been there was a thin line of gold",
    ends="""And in the mornings the light still dances on the ceiling. / The {o} hangs in the window now, where everyone can have some. / Ever since, {N} has kept a little light to give away."""),

"way": dict(
    way="""
Soon all the paths looked the same, and {N} passed the same [stone|stump] for the third time. | {^he} sat down, took out the {o} and looked at it carefully. "So that is where I am," {he} said. "Then it must be that way." And it was. | {he} walked in circles | the {o} showed the way
Clouds covered the sun, and nobody could tell the north from the south. | {N} put the {o} on a flat rock and bent over it. It did not care about the clouds. "Left," it seemed to say, and left {he} went. | clouds hid the sun | the {o} showed where to go
A signpost said one thing and an old crow said another. "Left," said the signpost. "Right," said the crow. | {N} asked the {o}. It showed a third way, small and straight, right between the two. | nobody agreed on the way | the {o} showed a third one
""",
    need="""
{^aw} sat on a suitcase by the road and cried. "I have been walking since yesterday," said the {w}, "and I am always here." | {N} brought out the {o}, and their two heads bent over it. "You live there," said {N}, "just behind that hill." And so it was. | had walked in circles since yesterday | found the way home with the {o} | N
The doctor was lost in the great wood, and {aw} was ill and waiting. | {N} took the {o} and ran into the wood, left at the oak, right at the spring, and brought the doctor back before dark. | was ill, and the doctor was lost | found the doctor with the {o} | N
"All the others have been somewhere," said {aw}. "I have only been here." | {N} put the {o} down between them. "Choose," {he} said. All afternoon they traveled with one finger, over mountains and seas, and were home for supper. | had never been anywhere | went around the world with the {o}
""",
    love="""Every evening {he} planned a journey with it. / With it {he} was never quite lost, only early. / It made the world seem near enough to visit.""",
    miss="""Without it I do not know where I am, only that I am not there / It shows the way to my grandfather's treasure, though it was only plums""",
    draw="""I am lost, and people said that you have something that knows the way / I saw it by your window, and I have always wanted to travel""",
    broke="Then it fell into a puddle, and after that it showed nothing but nonsense",
    mended="it pointed the way as surely as ever",
    ends="""+And on the {o} there is now a small red cross, with the word FRIEND beside it. / Since then nobody there has ever been lost for long. / And the best way of all, {he} found, was the way home."""),

"float": dict(
    way="""
A wide [river|lake] lay across the way, and there was no bridge. | {N} set the {o} on the water. It wobbled, turned around once and set off, with a line behind it to hold on to, right to the other side. | a wide water lay across the way | the {o} reached the other side | S
The rain had turned the whole [valley|road] into a lake, and all the bridges were under water. | "Good," said {N}, "then we shall float." The {o} slid over the drowned fences as lightly as a leaf. | the rain had drowned the road | the {o} floated over it all
On the far bank lived an old ferryman who had lost his ferry. "Nobody can cross," he called, "not even a message!" | {N} pushed the {o} out onto the water. It reached him, and he laughed, and sent back a long line to hold on to. | nobody could cross the river | the {o} reached the other side | FS
""",
    need="""
On a tiny island in the flood sat {aw}. "I can't swim!" cried the {w}. | {N} pushed the {o} into the water and steered with a branch. The water pulled and tugged, but the {o} went straight to the island and straight back. | was caught on an island in the flood | came to the rescue with the {o} | N
{^aw} stood on the bank and looked across. "My mother is over there," said the {w}, "and she doesn't know that I am well." | {N} put a [note|daisy] into the {o} and let the stream take it. In the evening it came back with an answer in it, and the answer had a kiss on it. | was parted from a mother by the river | sent word across in the {o} | N
The lilies in the pond were in bloom, but {aw} was too small to wade. "I would have liked just one," said the {w}. | {N} sent the {o} out among the leaves. It came back with one white lily in it, and the {w} said nothing for a long time, only smiled. | longed for a lily from the pond | fetched one with the {o} | N
""",
    love="""{^he} liked to think of all the shores it could visit. / It was happiest when it was wet. / On Sundays {he} let it drift and did not care where.""",
    miss="""Without it I can only look at the other shore / I made it with my brother, the summer before he went to sea""",
    draw="""I saw it from the water, and I thought: here lives someone who would like to go somewhere / The stream brought me here, and there it was""",
    broke="Then it hit a rock, and the water came in and would not stop",
    mended="it rocked on the water, dry inside, as proud as a swan",
    ends="""And the {o} goes from shore to shore, and it is never empty. / That evening the water was as smooth as silk, and the {o} slept on it. / +Every river leads somewhere, they say, and this one led to a friend."""),

"roll": dict(
    way="""
The [hill|road] was long and steep, and {his} legs were tired. At the top {he} could hardly stand. | {N} sat down on the {o}, lifted both feet and let go. Down it went, faster and faster, past cows with open mouths, right to the bottom. | {his} legs were too tired to go on | the {o} flew down the hill
In the middle of the road sat an old turtle with a heavy [trunk|sack]. "I am in nobody's way on purpose," she said, "but I can't move." | {N} put the turtle and all her things on the {o} and took her along. In return she showed {him} a short cut. | an old turtle sat in the way | {he} gave her a ride on the {o}, and she showed a short cut
Black clouds came up behind {him}, and they were quick. | {N} jumped on the {o} and off they went. The first drops fell just behind them, all the way, and not one of them caught up. | a storm came up behind {him} | the {o} was faster
""",
    need="""
{^aw} had hurt one foot and could not take another step. "And it is so far," said the {w}. | "Sit down on this," said {N}, and brought the {o}. Bump, bump, over roots and stones they went, and soon the {w} forgot to cry and began to sing. | had a hurt foot | gave a ride home on the {o}
The harvest of {aw} lay in the field, and the rain was coming. "I can only carry one turnip at a time," said the {w}. | {N} ran to get the {o}. Seven times it went to the barn and back, piled high, and then the first drop fell. | could not bring in the harvest alone | carried it all with the {o} | N
The doctor lived on the other side of the hill, and {aw} had a fever. | {N} put the {w} on the {o}, with a blanket on top, and ran. It had never gone so fast, and the doctor was at the door before they stopped. | had a fever, and the doctor was far | raced there with the {o}
""",
    love="""Together they knew every hill for miles. / It complained on the way up and laughed on the way down. / {^he} polished it every Saturday.""",
    miss="""Without it I must carry everything on my back / I promised my little ones a ride, and they are waiting""",
    draw="""I heard it rattling by, and it sounded like fun / I have a heavy load, and I saw it standing there""",
    broke="Then it ran into a stone, and with a crack it went down on one side",
    mended="it rolled as smoothly as a thought",
    ends="""+And on fine days the {o} goes down the hill with two of them on it, shouting. / It still squeaks a little, and nobody would want it otherwise. / And all the way home the {o} ran by itself, or so it seemed."""),

"fly": dict(
    way="""
The wood was so deep that {N} could not see where it ended. | {^he} climbed on a stump and let the {o} go up into the wind. It leaned toward the east, where the air was open, and {he} followed it out. | the wood had no end | the {o} showed where the wind was free
A deep gorge lay across the path. On the far side stood an old man with a plank. "Send me a string," he called, "and you shall have a bridge!" | {N} let the wind take the {o} over the gorge with a thread tied to it. Back came a rope, and then the plank, and {he} walked across. | a gorge lay across the path | the {o} carried a thread over it | F
A giant baby sat on the road and howled, so that nobody could get by. | {N} let the {o} dance in the air in front of its nose. The howling stopped. "Oh," said the baby, and crawled after it, off the road and into the clover. | a giant baby howled on the road | the {o} made it laugh
""",
    need="""
Deep in the tall corn {aw} was calling. "I can't see over it! Where is the house?" | {N} let the {o} rise until it stood high above the field. "Walk to the {o}!" {he} called, and the corn rustled, nearer and nearer, until the {w} stepped out. | was lost in the tall corn | showed the way with the {o} | N
{^aw} sat at the window with a broken leg. "Everyone is out there," said the {w}, "and I am only in here." | {N} ran up and down outside with the {o}, high and low, in loops and curls, and tied the end of it to the {w}'s own finger. | had to stay in bed | let the {o} dance outside the window | N
On the cliff sat {aw}, who had a letter for the island, and the sea was too rough for boats. | {N} tied the letter to the {o} and waited for the right wind. Up it went, over the waves, smaller and smaller, and on the island somebody waved a white cloth. | had a letter for the island | sent it with the {o} | N
""",
    love="""When the wind was right, it was the happiest thing in the sky. / {^he} told it secrets and let the wind have them. / It made {him} feel light, even on heavy days.""",
    miss="""Without it the sky above my house is empty / I had promised it to a boy who can't get out of bed""",
    draw="""I saw it above the roofs, and I ran all the way / I looked up, and there it was, and I forgot to be sad""",
    broke="Then a gust threw it into a tree, and it came down crooked and torn",
    mended="it danced on the wind with a bright new patch",
    ends="""And when the wind comes from the west, you can see it above the roofs. / That evening the {o} hung in the sky a little longer than it had to. / For the wind belongs to everyone, and now, so did the {o}."""),

"carry": dict(
    way="""
A little fire had jumped out of the grass and was running across the road. | {N} filled the {o} in the ditch and poured, and filled and poured again, until there was only a hiss and a curl of smoke. | a grass fire blocked the road | with the {o} {he} put it out
By the road stood a tree with a dry voice. "Water," it whispered, "and I shall let you pass." Its roots lay across the whole way. | {N} went to the spring with the {o}, three times there and back. The tree drank, sighed, and lifted its roots like a skirt. | a thirsty tree lay across the way | with the {o} {he} brought it water
An old ferrywoman shook her head. "The boat leaks," she said. "We should sink before the middle." | "You row," said {N}, "and I will scoop." And so they went, {he} with the {o}, splash, splash, until they bumped against the other bank. | the ferry leaked | with the {o} {he} kept it dry | FS
""",
    need="""
{^aw} lay in the shade with a dry tongue. "The spring is too far," said the {w}. | {N} ran to the spring and filled the {o} to the brim. {^he} walked back very slowly, so as not to lose a drop. | was too thirsty to stand | brought water in the {o}
Three small fish and {aw} were in great trouble. The pond was drying up, and only a puddle was left. "Where shall they go?" cried the {w}. | {N} put the fish into the {o} with the last of the water and carried them to the river. They said thank you in bubbles. | could not save three small fish | carried them in the {o} | N
{^aw} had picked berries all day, and had nothing to carry them in. "They all run away," said the {w}. | "Not from this," said {N}, and held out the {o}. It took them all, even the small green ones. | had nothing to carry the berries in | lent the {o}
""",
    love="""{^he} said that one can carry anything, if one has something to carry it in. / There was always something in it, even if it was only air. / {^he} never went out without it.""",
    miss="""Without it I cannot bring my mother her tea / It was the only thing I carried when I left home""",
    draw="""I was thirsty, and there it stood / I saw it on your wall, and I thought of home""",
    broke="Then it fell on the stones, and after that nothing would stay in it",
    mended="it held every drop, and the mend looked like a little river",
    ends="""+And the {o} is never empty now, for one of them always fills it. / *It was not a grand thing, the {o}, but it had carried a kindness all that way. / That evening there was tea, and the {o} stood in the middle of the table."""),

"charm": dict(
    way="""
A [grumpy|sleepy] troll sat on the bridge. "Nobody crosses," he said, "unless I see something that I have never seen before." | {N} showed him the {o}. The troll [turned it around|looked at it] for a long time. "No," he said at last, "I have never seen that." And he moved aside. | a troll would let nobody cross the bridge | he had never seen such a {o} | FS
[Halfway there|Before long] {he} lost heart. The road was so long, and {he} was so small. | {N} sat down and held the {o} in {his} lap. It did not say anything, but it was there, and after a while that was enough. {^he} stood up again. | {he} lost heart | the {o} gave {him} courage
At the gate stood a guard in a tall hat. "What is the password?" he asked. {N} did not know it. | All {he} had was the {o}, so {he} held it up. "That is it!" cried the guard. "The password is to show the thing that you love best." | a guard asked for a password | showing the {o} was the password
Two roads met, and between them sat an old man with a scale. "Put in the dearest thing you have," he said, "and I will tell you where to go." | {N} laid the {o} on the scale, and it went down with a bump. "You love it well," said the old man. He gave it back and pointed to the right. | an old man with a scale asked for the dearest thing | the {o} was weighed and found dear
A dark little wood lay across the way. "Who are you?" it whispered. "Who are you?" | {N} held up the {o}. "I am the one with the {o}," {he} said. The wood thought about that, and then it made a path. | a dark little wood asked who {he} was | the {o} was answer enough
""",
    need="""
{^aw} was sitting under a hedge, sobbing. "I am the smallest of them all," said the {w}, "and I am no good at anything." | {N} sat down too and put the {o} into the {w}'s hands. "Hold this," {he} said. "It helps me when I am sad." Bit by bit the sobs grew smaller. | was sobbing under a hedge | gave comfort with the {o}
{^aw} had to sing in front of the whole [school|town] and was shaking like a leaf. "I can't," said the {w}. | "Take my {o}," said {N}. "Look at it, and sing to it alone." And the {w} sang, first like a mouse and then like a lark. | was too shy to sing | lent the {o} for courage
Two big boys had taken the ball of {aw} and would not give it back. "Only for something better," they said. | {N} looked at the {o} once more, and then {he} held it out. The boys turned red. "Keep it," they said. "Here is the ball. Can we all play?" | had lost a ball to two big boys | offered the {o} for it
{^aw} was new there and did not know anybody. "I don't know how to begin," said the {w}. | "You could begin by asking what this is," said {N}, and held out the {o}. So the {w} asked, and they were still talking when the lamps were lit. | was new there and knew nobody | began a long talk with the help of the {o}
{^aw} had a birthday, and everyone had forgotten it. | {N} tied a blade of grass around the {o} and put it into the {w}'s hands. "For today," {he} said, "and for every birthday after this one." Then {he} sang, and the {w} sang along. | had a birthday that everyone had forgotten | made a birthday present of the {o}
""",
    love="""{^he} took it along everywhere, even to bed. / When {he} held it, {he} felt a little bit taller. / {^he} would not have traded it for a castle.""",
    miss="""Without it I cannot fall asleep / My grandfather gave it to me the day he went to sea""",
    draw="""I saw it in your window, and it made me smile / I once had one just like it""",
    broke="Then one day it fell down the stairs, and when {he} picked it up, it was in two pieces",
    mended="it was in one piece again, with a thin bright line where the crack had been",
    ends="""+And the {o} lies on the shelf between them, where both can see it. / {N} still has the {o}. It has not changed at all, but {he} has. / Small things, they say, remember everything. / And {N} put the {o} back in its place, where it looked quite pleased with itself. / Nobody ever said again that it was only {ao}. / And the {o}? It has never told anyone what it saw."""),

"hold": dict(
    way="""
An old peddler had dropped a hundred apples, and they had rolled all over the road. Nobody could pass. | {N} gathered them up in the {o}, one by one, down to the last. The peddler laughed, gave {him} the reddest and cleared the way. | a hundred apples lay all over the road | {he} gathered them up in the {o}
At the border sat a man with a big mustache. "What do you have there?" he asked. "Nobody passes with nothing." | {N} opened the {o}. "Only hope," {he} said. The man looked into it for a long time. Then he wrote down "hope" in his book and let {him} through. | a man at the border stopped everyone | the hope in the {o} was enough
Three small frogs sat in the middle of the road and would not move. "It is too dusty to hop," they said, "and the pond is so far." | {N} lined the {o} with wet leaves and let them climb in. They sang all the way to the pond, and in return they showed {him} a short cut. | three small frogs sat in the road | {he} carried them along in the {o}
""",
    need="""
{^aw} had gathered nuts all day, and had nothing to carry them in. "They all roll away," said the {w}. | "Not from this," said {N}, and held out the {o}. It took them all, even the small wrinkled ones. | had nothing to carry the nuts in | lent the {o}
The wind had scattered the letters of {aw} all over the meadow. "They are all I have," said the {w}. | {N} ran this way and that with the {o}, under hedges and over ditches, until not one was missing. | had lost a bundle of letters to the wind | gathered them up in the {o}
{^aw} had to move to a new house and was crying over all the small things that had to stay behind. | "How small?" asked {N}, and opened the {o}. In went the spoon, the blue stone and the picture of the moon, and there was still room for a song. | had to leave everything behind | found room for it all in the {o}
""",
    love="""{^he} said that one can carry anything, if one has something to carry it in. / There was always something in it, even if it was only air. / {^he} never went out without it.""",
    miss="""It was the only thing I carried when I left home / All my letters are in it""",
    draw="""I have so much to carry, and I saw that you have just the thing / I saw it standing there, and I thought that you might be going somewhere""",
    broke="Then its bottom fell out, and everything in it rolled away",
    mended="it was stronger than ever, and nothing has fallen out of it since",
    ends="""+And the {o} is never empty now, for one of them always fills it. / *It was not a grand thing, the {o}, but it had carried a kindness all that way. / And the {o} stood by the door that night, ready for anything."""),

"hat": dict(
    way="""
The sun burned so hot that the road shook in front of {his} eyes. | {N} pulled the {o} down low and walked in its little shade, and when {he} came to a brook, {he} filled it with cool water and put it on again. | the sun burned down | the {o} gave shade and water
Acorns came flying out of the trees. "Nobody passes!" cried the squirrels. "This is our wood!" | Tock, tock, tock, went the acorns on the {o}. {N} took it off, full to the brim, and gave them all back with a bow. The squirrels had never met such good manners. | squirrels threw acorns | the {o} caught them all
At the palace gate a guard shook his head. "Only people of importance," he said. | {N} went around the corner, put on the {o}, just a little to one side, and came back with {his} chin up. "Oh, excuse me," said the guard, and opened both gates. | a guard let nobody pass | with the {o} on {he} looked important | F
""",
    need="""
{^aw} had tumbled out of a tree and could not get home before dark. | {N} filled the {o} with moss and set it in a low branch. The {w} slept in it all night, as snug as an egg. | had tumbled out of a tree | made a bed of the {o} | N
It began to hail, stones as big as cherries, and {aw} had nothing to hide under. | {N} put the {o} on the {w} at once. It came down right over both ears, and inside it was as safe as a house. | was caught in the hail | lent the {o}
{^aw} had come last in the race, and everybody laughed. | {N} took off the {o} and put it on the {w}. "This is for the one who did not give up," {he} said, and nobody was laughing anymore. | had come last in the race | gave away the {o} like a crown
""",
    love="""{^he} felt a little taller under it. / {^he} only took it off to say good morning. / Under it {he} had {his} best ideas.""",
    miss="""Without it nobody knows who I am / I was married in it""",
    draw="""I saw it on your gatepost, and I thought somebody was bowing to me / I once knew somebody with one just like it""",
    broke="Then a cart ran over it, and it was as flat as a plate",
    mended="it was as round as ever, only a little softer",
    ends="""+And the {o} hangs by the door, next to another one just like it. / Since then {N} has lifted the {o} to everyone, great or small. / That night the {o} hung on the bedpost and kept watch."""),

"write": dict(
    way="""
"Which way?" {N} wondered. There was a signpost at the crossroads, but the rain had washed all the words off it. | {^he} asked a snail, a crow and the wind, and then took the {o} and drew the names on again, with a small arrow for each. Now {he} knew the way, and so would everyone after {him}. | the signpost was bare | with the {o} {he} wrote it new
A guard with a long face stood at the gate. "The king is sad," he said. "Nobody may enter until he smiles." | {N} took the {o} and drew a cow on a bicycle, right there on a stone. They carried it in. A moment later a great laugh came out of all the windows, and the gate opened. | the gate was shut until the king smiled | with the {o} {he} drew him a picture
The tunnel had no end and a great many turns. | At each turn {N} made a small mark on the wall with the {o}: a star, a fish, a moon. So {he} never went wrong twice, and at last there was daylight. | a tunnel twisted and turned | marks made with the {o} showed the way
""",
    need="""
"My mother is far away," said {aw}, "and I don't know how to tell her that I miss her." | "Then tell me," said {N}, and took the {o}. {^he} put it down, word for word, with a heart at the end, and the wind carried it off like a bird. | longed to send word to a mother | put it all down with the {o} | N
{^aw} had a gray wall in front of the window, and nothing else to look at. | {N} took the {o}, went out and began. A tree came, and a blue hill, and a road with a small cart on it. "There," {he} said. "Now you can look as far as you like." | had only a gray wall to look at | drew a whole country on it with the {o} | N
{^aw} had lost a kitten. "Nobody knows what she looks like," said the {w}. | {N} drew her with the {o}, with the white paw and the bent ear, and put the picture up by the well. Before supper someone came with the kitten under one arm. | had lost a kitten | drew her picture with the {o}
""",
    love="""With it {he} had drawn everyone {he} knew, and some that {he} did not. / It knew what {he} meant before {he} did. / Whatever was missing in the world, {he} drew.""",
    miss="""Without it all my stories stay in my head, and it is crowded in there / I write to my son with it every Sunday""",
    draw="""I saw the picture on your gate, and I wanted to see who had made it / I saw your note, and I had to answer""",
    broke=None, mended=None,
    ends="""And it was {N} who wrote this story down, with what was left of the {o}. / And {he} drew a small sun in the corner, as {he} always did. / There was just enough left of the {o} to write: the end."""),

"read": dict(
    way="""
A lion lay across the road. "I'm bored," he said, "and when I am bored, I eat people." | {N} sat down at a safe distance, opened the {o} and began to read aloud. At the end of the page the lion said, "And then?" At the end of the next he was lying with his head in {his} lap. "Pass," he sighed, "but come back this way." | a bored lion lay across the road | {he} read to him from the {o}
Three paths ran on from there, and all of them looked wrong. | {N} opened the {o}, and there in the margin somebody had written: when in doubt, follow the water. {^he} listened, heard a brook, and followed it. | {he} did not know which path to take | the {o} held the answer
The night was long, and something was rustling in the dark. {N} did not dare to close {his} eyes. | {^he} opened the {o} and read to the rustling, quite politely. After a while a family of mice came out and sat down in a row. | something rustled in the dark | when {he} read from the {o}, it was only mice
""",
    need="""
{^aw} could not sleep. "Every time I close my eyes," said the {w}, "the night gets bigger." | {N} sat down beside the bed, opened the {o} and read, slower and slower. Before the page was turned, the {w} was asleep. | could not sleep | read aloud from the {o} | N
{^aw} sat alone at the edge of the playground. "I don't know how to play their games," said the {w}. | {N} opened the {o} and read aloud, only to the {w} at first. But one by one the others came nearer, and soon everybody sat in one big ring. | sat all alone | read from the {o} until everybody came
The eyes of {aw} had grown dim. "I used to love stories," said the {w}, "and now they are only gray lines." | "Then listen," said {N}, and opened the {o}. {^he} read until the lamp burned low, and all the ships and tigers came back. | could no longer read | read aloud from the {o}
""",
    love="""{^he} knew it by heart, and still {he} did not know how it ended. / Each time {he} opened it, it smelled of faraway. / {^he} read it to the cat, to the kettle and to the moon.""",
    miss="""Without it I shall never know how it ends / My mother read it to me when I was small""",
    draw="""I heard you reading aloud, and I want to know what happens next / I saw it in your window, and I have read all of mine""",
    broke="Then it fell into the brook, and the words began to swim away",
    mended="every word was back in its place, though the pages crackled a little",
    ends="""+And on the last page of the {o} they wrote their two names. / +That evening they read until the candle was a puddle. / And the {o} fell open that night at the best page of all. / And then {N} turned the page, and it all began again."""),

"grow": dict(
    way="""
A high wall stood across the way, without a gate and without an end. | {N} planted the {o} at the foot of it, watered it and waited. In the night it began to grow, up and up, and in the morning {he} climbed it like a ladder. | a high wall stood across the way | the {o} grew up it like a ladder | F
On the road sat an old gardener who would let no one by. "They all only take," he said. "Nobody ever brings me anything that grows." | {N} showed him the {o}. They planted it together, and by the time it was watered, the old man was humming. "Come by again," he said, "and see it bloom." | an old gardener let nobody by | he planted the {o} and smiled
The land turned to dust, and there was no shade anywhere. | {N} pushed the {o} into the ground and gave it the last of {his} water. The earth trembled. Up came a stem, and leaves, and a cool green shadow to rest in. | the land was dry as dust | the {o} grew into shade
""",
    need="""
{^aw} stood in front of a bare patch of earth. "The goats ate my whole garden," said the {w}. | {N} knelt down and planted the {o} right in the middle. They watered it each day, and one morning there was a green nose in the earth. | had lost a garden to the goats | planted the {o} there | N
"My grandmother misses the woods," said {aw}. "She cannot walk so far anymore." | So {N} planted the {o} under the old woman's window. She watched it from her chair, leaf by leaf, and never felt shut in again. | had a grandmother who missed the woods | planted the {o} under her window | N
The hill above the house of {aw} was sliding down, a little more with every rain. | {N} planted the {o} there. Its roots went down like fingers and held the whole hill still. | lived under a sliding hill | planted the {o} to hold it | N
""",
    love="""{^he} sometimes thought that {he} could hear it breathe. / {^he} kept it in a little box with a hole for the air. / {^he} believed that there was something wonderful in it, and {he} was right.""",
    miss="""Without it there will be no spring in my garden / It is the last one of my grandfather's, and there is no other""",
    draw="""I smelled fresh earth, and I came to see what was growing / I saw you watering something, and you looked so hopeful""",
    broke=None, mended=None,
    ends="""*And there it stands today, taller than a house, with a bench around it. / *Every spring it blooms, and all the birds know the way there. / +It takes a long time to grow such a thing, they say, and the same is true of a friend.""",
    origins="""The wind had blown it right into {his} hand. / {^his} grandfather had given it to {him}, with a wink. / {^he} had got it from a bird in return for crumbs. / {^he} had found it in the pocket of an old coat."""),

"flower": dict(
    way="""
A [big|grumpy] bull stood in the meadow, snorting and scraping the ground. | {N} walked up on trembling legs and held out the {o}. The bull put his wet nose to it. He sniffed, and he sneezed, and he lay down in the grass with a happy look. | a bull stood in the way | he sniffed at the {o} and lay down
A cloud of bees hung over the path and would not let {him} through. | {N} held up the {o}. The bees came down to it one by one, and while they drank, {he} walked on, very slowly, with a humming crown. | a cloud of bees hung over the path | the {o} made them gentle
At the ferry sat an old ferrywoman who had not smiled in a year. "It costs one gold coin," she said. {N} had none. | {^he} held out the {o} instead. She looked at it, and her whole face opened. "My husband used to bring me those," she said. "Get in." | the ferry cost a gold coin | the old woman liked the {o} better | FS
""",
    need="""
{^aw} was ill in bed and had turned to the wall. "Everything is gray," said the {w}. | {N} put the {o} on the table by the bed, where the light fell on it. After a while the {w} turned around, and then sat up, and then asked for soup. | lay ill and sad | brought the {o} to the bed | N
Two neighbors of {aw} had not spoken for years, and the poor {w} had to carry all their messages. | {N} put the {o} on the fence between the two gardens. "Is it yours?" asked one. "I thought it was yours," said the other, and then they had to talk. | lived between two angry neighbors | put the {o} on the fence between them | N
{^aw} was to be queen of the May, but the wind had blown away her crown of leaves. | {N} tucked the {o} behind her ear. "There," {he} said. "Now you look more like a queen than before." | had lost her crown of leaves | gave her the {o} to wear
""",
    love="""{^he} said good morning to it, and it nodded. / {^he} gave it water every day, and every day it gave {him} something back. / It was the last one of the summer.""",
    miss="""Without it the bees do not know where I live / I grew it for my mother, for her hundredth birthday""",
    draw="""I saw a bit of color by your door, and my feet stopped / I followed a bee, and it brought me here""",
    broke=None, mended=None,
    ends="""And from its seeds came others, and they grow there still. / +The {o} faded, as they do, but the friendship did not. / Ever since, there has been a {o} on that windowsill each year.""",
    origins="""{^he} had grown it {himself}, from almost nothing. / It had come up one day by {his} door, without being asked. / {^he} had found it where nobody would have looked. / The gardener had given it to {him} for a joke."""),

"key": dict(
    way="""
A tall iron gate stood across the way, and it was locked. | {N} tried the {o}. It was stiff at first, then it turned, and the gate swung open with a song. | a tall gate was locked | the {o} fitted | F
At the end of the path there was a rock with a small door in it. | {N} put the {o} into the lock and turned it once. Behind the door a stair went up and up, all the way to the other side. | a door in the rock was shut | the {o} opened it
""",
    need="""
From inside an old shed came a knocking. It was {aw}. "The door fell shut," called the {w}, "and it's so dark in here!" | {N} tried the {o}. It scratched, it stuck, it clicked, and out tumbled the {w}, right into the sunshine. | was locked in a shed | opened the door with the {o}
{^aw} had a little trunk that nobody could open. "My father left it to me," said the {w}. | {N} turned the {o} very gently. Up went the lid, and inside lay a pair of dancing shoes and a letter that began: my dear child. | had a trunk that would not open | opened it with the {o}
A bird sang so sadly in a cage, and {aw} stood before it and cried. "The man who locked it went away long ago." | {N} reached up with the {o}. Click. The bird sat in the open door for a moment, and then it sang a different song. | wept for a bird in a locked cage | set it free with the {o}
""",
    love="""Every day {he} tried it in a new door, and it had opened some surprising ones. / {^he} did not know what it was for, and that was the best thing about it. / {^he} wore it on a string around {his} neck.""",
    miss="""Without it I have been sitting on my own doorstep for two days / It opens the box with all my letters in it""",
    draw="""I saw it hanging by your door, and I have a lock without a key / I wondered what a {o} like that could open""",
    broke="Then it broke in the lock, with a small sad snap",
    mended="it turned in every lock as if it had been dipped in butter",
    ends="""And nobody knows how many doors the {o} can open, for {N} is still trying. / The {o} hangs on its nail, and anyone may borrow it. / For there is one thing, they say, that opens every door, and it is not the {o}."""),

"time": dict(
    way="""
At the river a sign said: The ferry leaves at noon, not before and not after. There was no sun that day, and nobody knew the hour. | {N} looked at the {o}. "Just now!" {he} cried, and ran, and jumped on board as the rope was cast off. | the ferry left at noon and no one knew the hour | the {o} told the time | FS
A dragon slept across the road. "He wakes at four, stretches, and goes to sleep again," said a hedgehog, "but who knows when that is?" | {N} sat down with the {o} and waited. At four the dragon stood up and stretched, and {N} ran right under his belly to the other side. | a dragon slept across the road | the {o} told when he would move
"The bridge is only there from seven until eight," said a heron, "when the tide is out." | {N} watched the {o} and did not leave a minute too soon. At seven the stones rose out of the water, and at eight {he} was already across. | the bridge was only there at low tide | the {o} told the hour | FS
""",
    need="""
{^aw} was running up and down the platform. "Has my train gone? I can't tell the time!" cried the {w}. | {N} held up the {o}. "There is still one minute," {he} said, and they ran, and the {w} waved from the last window. | was afraid to miss the train | told the time by the {o} | N
{^aw} could not fall asleep alone in the big house. "It is so quiet," said the {w}. | {N} put the {o} beside the pillow. Tick, it went, tick, tick, like a small heart in the dark, and soon there was a snore. | could not sleep in the quiet house | lent the {o} to keep watch | N
The rooster had a cold, and {aw} had to wake the whole village for the harvest. "I always oversleep," said the {w}. | "Then borrow this," said {N}, and gave the {w} the {o}. In the morning everyone was up with the sun, and nobody was more surprised than the {w}. | had to wake the whole village | lent the {o} | N
""",
    love="""{^he} liked the sound of it, like small feet coming nearer. / It never hurried and it never stopped. / When {he} could not sleep, {he} watched it work.""",
    miss="""Without it I come too late to everything, even to bed / It stopped when my wife was born, and started when I met her""",
    draw="""I was late for everything, and then I saw it in your window / I only wanted to ask what time it is""",
    broke="One night it stopped, and no shaking would make it go",
    mended="it went again, and it was never late after that",
    ends="""+And it is still going, and so is their friendship. / For the best hours, they found, are the ones that you give away. / And when it was bedtime, everybody went home. / And the {o} went on counting, quite content."""),

"sweep": dict(
    way="""
The snow had drifted so high that there was no road anymore. | {N} took the {o} and swept, left and right, left and right, and a clean little path ran along in front of {him}. | snow had covered the road | the {o} swept it clear
A thousand spiders' webs hung across the way, as thick as curtains. "Excuse me," said {N}, and nobody answered. | {^he} brushed them aside with the {o}, one by one and very gently, so that every spider could pack and move. | webs hung across the way | the {o} cleared them gently
A dusty old giant lay across the pass, and whenever he breathed in, the dust made him sneeze, and the sneeze blew everybody back down the hill. | {N} tiptoed up and cleaned him with the {o}, from the beard to the boots. "Ahh," said the giant. He did not sneeze again. | a dusty giant sneezed everyone away | {he} cleaned him with the {o}
""",
    need="""
The house of {aw} was full of ashes. "I only wanted to bake a cake," said the {w} from under a black nose. | "Open the window," said {N}, and took the {o}. They cleaned from top to bottom, and under the ashes there was still one good slice. | had a house full of ashes | swept it clean with the {o} | N
"My little brother is under there!" cried {aw}. A great heap of leaves had slid off the roof and buried him. | {N} swept with the {o} as fast as {he} could, and the leaves flew like birds. Out sat the brother, with a beetle on his head, and asked for more. | had a brother buried in leaves | swept the leaves away with the {o}
The queen was coming, and {aw} had to clean the whole square alone. "I shall never finish," said the {w}. | "Two are faster," said {N}, and began at the other end with the {o}. They met in the middle just as the trumpets sounded. | had to clean the whole square alone | helped with the {o} | N
""",
    love="""On Saturdays they danced through the house together. / It left everything a bit brighter than before. / {^he} never felt that a day had begun until {he} had used it.""",
    miss="""Without it the dust comes up to my knees / My mother danced with it in the kitchen""",
    draw="""I saw your clean doorstep, and it looked like a welcome / I saw it by your door, and I thought a witch might live here, and I was curious""",
    broke="Then one day it snapped right in the middle of the kitchen",
    mended="it was as good as new, with a ring of red thread around the mend",
    ends="""+And every Saturday they clean the path between their two houses. / The {o} stands in the corner, and it knows this story better than I do. / And then the crumbs were swept up, and that was that."""),

"soft": dict(
    way="""
The path ended at a ledge, and the ground was far below. | {N} threw the {o} down first, took a deep breath and jumped after it. Whump! It was like landing on a cloud. | the path ended at a ledge | {he} landed softly on the {o} | F
A tired old bear sat in the road and growled at everybody. "I have had a stone for a bed," he said, "for a hundred years." | {N} put the {o} under his head. He closed one eye, and then the other, and his snoring opened the road like a gate. | a tired bear growled at everybody | on the {o} he fell asleep
Night fell, and there was nothing but stones to lie on. | {N} lay down with the {o} and dreamed of buttered toast. In the morning {he} was fresher than the dew. | there was nothing but stones to sleep on | the {o} was soft
""",
    need="""
Up on the roof clung {aw}. "I can't hold on any longer!" cried the {w}. | {N} pushed the {o} right under the edge. "Let go!" {he} called, and down came the {w}, plump, in the very middle of it. | clung to the edge of a roof | softened the fall with the {o}
{^aw} had walked for three days and had nowhere to sleep. | {N} made up a bed in the corner with the {o}. The {w} said, "I only want to try it," and was asleep before the last word. | had nowhere to sleep | made a bed with the {o}
An egg had rolled out of the nest that {aw} was watching, and it was getting cold. | {N} laid it on the {o} and covered it with both hands. Toward morning there was a tap, and then another, and a very small beak. | had an egg that was growing cold | kept it safe on the {o} | N
""",
    love="""{^he} had dreamed all {his} best dreams on it. / It was the first to hear {his} secrets. / Whoever leaned on it grew a little kinder.""",
    miss="""Without it I lie awake and count the cracks in the ceiling / It is stuffed with the feathers of my old goose, who was my friend""",
    draw="""I was so tired, and there it lay in the sun / I saw it by your door, and my knees would not go on""",
    broke="Then it caught on a nail and tore, and all its insides flew about like snow",
    mended="it was as plump as ever, and it had a new dream in it",
    ends="""And that night everyone slept, even the wind. / +The {o} has two dents in it now, side by side. / And whoever rests on the {o} still dreams of this."""),

"reach": dict(
    way="""
A wall of stone stood across the way, twice as high as {N}. | {^he} looked at the {o}, tested it once, and with its help {he} was over the top before the wall had noticed. | a stone wall stood across the way | the {o} helped {him} over | F
In the middle of the swamp the path simply stopped. On both sides it bubbled. | {N} laid the {o} across the soft ground and went over it, one careful step after another. | the path stopped in a swamp | the {o} made a bridge | FS
The latch of the gate was far too high, and nobody heard {him} knock. | {N} fetched the {o}, reached up as far as {he} could, and gave a push. Click, went the latch. | the latch was too high | the {o} reached it | F
""",
    need="""
{^aw} sat on the highest branch and did not dare to move. "Up was easy," said the {w}, "but there is no down!" | {N} came running with the {o} and set it against the trunk. "One foot," {he} said, "and now the other." And there was the grass again. | was stuck up in a tree | brought help with the {o}
"My kite is on the roof!" cried {aw}. "And I only had it for one day." | {N} took the {o}, stretched until {he} was twice as long as usual, and hooked it by the tail. | had a kite on the roof | got it down with the {o}
The little bell over the door of {aw} had stopped ringing, and it hung too high. "So nobody knows when I am lonely," said the {w}. | {N} reached up with the {o} and gave the bell a push. A wasps' nest the size of a nut fell out, quite empty, and the bell rang again. | had a bell that hung too high | reached it with the {o}
""",
    love="""With it {he} had reached every apple and every swallow's nest, just to say hello. / {^he} said that nothing is too high if you bring something along. / It had held {him} up many times and never once complained.""",
    miss="""Without it I can only look at my apples / With it my father hung up the star every winter""",
    draw="""My hat is in your tree, and I saw that you have just the thing / I saw it leaning there, and I thought: a helpful house""",
    broke="Then it broke, with a crack like a dry branch",
    mended="it was stronger than before, with a band of copper around the break",
    ends="""+And in autumn they reach for the apples together, one up and one down. / Since then nothing there has been too high for anybody. / It leans by the door to this day, and everyone may use it."""),
}
