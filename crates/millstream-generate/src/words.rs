//! Words that messages are made of. Written for this project; the original's lists are longer.

#[rustfmt::skip]
pub(crate) const MALE: &[&str] = &[
    "Adam", "Ahmed", "Andrew", "Anton", "Ben", "Boris", "Carlos", "Chen", "Daniel", "David",
    "Diego", "Emil", "Erik", "Felix", "Frank", "George", "Hans", "Hugo", "Ivan", "Jack", "James",
    "John", "Jorge", "Kofi", "Lars", "Leo", "Luca", "Marco", "Martin", "Max", "Nils", "Oscar",
    "Pablo", "Paul", "Peter", "Rafael", "Ravi", "Robert", "Samuel", "Simon", "Thomas", "Tomas",
    "Viktor", "Walter", "William", "Yusuf",
];

#[rustfmt::skip]
pub(crate) const FEMALE: &[&str] = &[
    "Agnes", "Alice", "Amina", "Anna", "Astrid", "Beatrice", "Carla", "Clara", "Diana", "Elena",
    "Elise", "Emma", "Eva", "Fatima", "Freya", "Grace", "Hanna", "Helen", "Ida", "Ines", "Irene",
    "Jane", "Johanna", "Julia", "Karin", "Laura", "Lena", "Lucia", "Maria", "Marta", "Mei", "Mia",
    "Nadia", "Nina", "Olga", "Paula", "Priya", "Rosa", "Ruth", "Sara", "Sofia", "Susan", "Vera",
    "Yara", "Zoe",
];

#[rustfmt::skip]
pub(crate) const LAST_NAMES: &[&str] = &[
    "Adler", "Andersen", "Baker", "Becker", "Berg", "Blanc", "Bondar", "Brown", "Carter", "Castro",
    "Chavez", "Cohen", "Costa", "Cruz", "Dubois", "Eriksen", "Evans", "Fischer", "Fontana",
    "Garcia", "Gruber", "Haas", "Hansen", "Hughes", "Ito", "Jansen", "Johnson", "Jung", "Kaya",
    "Keller", "Khan", "Kim", "Kovacs", "Lang", "Larsen", "Lopez", "Marino", "Meyer", "Moreau",
    "Murphy", "Nakamura", "Novak", "Okafor", "Olsen", "Park", "Patel", "Popov", "Quinn", "Reyes",
    "Rossi", "Santos", "Sato", "Schmidt", "Silva", "Singh", "Smith", "Suzuki", "Tanaka", "Taylor",
    "Torres", "Vargas", "Vogel", "Walker", "Wang", "Weber", "Wilson", "Wong", "Yilmaz", "Young",
];

#[rustfmt::skip]
pub(crate) const COMPANIES: &[&str] = &[
    "Almond", "Argent", "Bluefield", "Brightwater", "Cedarline", "Clearbrook", "Copperleaf",
    "Cornerstone", "Dovetail", "Eastgate", "Fairwind", "Fernhill", "Flintlock", "Greyfriar",
    "Halyard", "Harbourview", "Ironbridge", "Junipera", "Kestrel", "Lanternworks", "Longmeadow",
    "Mapleton", "Millrace", "Moonraker", "Northlight", "Oakhurst", "Overland", "Pinecrest",
    "Quarryman", "Redwing", "Riverside", "Saltmarsh", "Silverbirch", "Stonegate", "Thistledown",
    "Tidewater", "Umbra", "Vantagepoint", "Westerly", "Whitecap", "Windmill", "Yellowstone",
];

#[rustfmt::skip]
pub(crate) const CITIES: &[&str] = &[
    "Ashford", "Bayview", "Bellmont", "Bridgewater", "Brookfield", "Cedar Falls", "Clayton",
    "Clearwater", "Dayton", "Eastport", "Elmwood", "Fairview", "Foxborough", "Glenwood",
    "Greenfield", "Hamilton", "Harborton", "Hillcrest", "Kingston", "Lakeside", "Lincoln",
    "Madison", "Maplewood", "Milford", "Newport", "Northfield", "Oakdale", "Oxford", "Plainview",
    "Portland", "Quincy", "Ravenna", "Richmond", "Riverton", "Rockport", "Salem", "Springfield",
    "Stonebridge", "Sunnyvale", "Trenton", "Union City", "Vernon", "Waterford", "Westbrook",
    "Windsor", "Woodstock",
];

/// The states of the United States.
#[rustfmt::skip]
pub(crate) const STATES: &[&str] = &[
    "Alabama", "Alaska", "Arizona", "Arkansas", "California", "Colorado", "Connecticut",
    "Delaware", "Florida", "Georgia", "Hawaii", "Idaho", "Illinois", "Indiana", "Iowa", "Kansas",
    "Kentucky", "Louisiana", "Maine", "Maryland", "Massachusetts", "Michigan", "Minnesota",
    "Mississippi", "Missouri", "Montana", "Nebraska", "Nevada", "New Hampshire", "New Jersey",
    "New Mexico", "New York", "North Carolina", "North Dakota", "Ohio", "Oklahoma", "Oregon",
    "Pennsylvania", "Rhode Island", "South Carolina", "South Dakota", "Tennessee", "Texas", "Utah",
    "Vermont", "Virginia", "Washington", "West Virginia", "Wisconsin", "Wyoming",
];

#[rustfmt::skip]
pub(crate) const STREETS: &[&str] = &[
    "Acorn Lane", "Alder Road", "Baker Street", "Bay Avenue", "Beech Court", "Birch Street",
    "Bridge Road", "Canal Street", "Castle Hill", "Cedar Place", "Chapel Street", "Cherry Lane",
    "Church Road", "Dock Street", "Elm Avenue", "Factory Road", "Field Street", "Forest Drive",
    "Garden Place", "Grove Street", "Harbor Road", "High Street", "Hill Avenue", "Holly Court",
    "King Street", "Lake Drive", "Linden Avenue", "Main Street", "Maple Avenue", "Market Street",
    "Meadow Lane", "Mill Road", "North Street", "Oak Avenue", "Orchard Place", "Park Avenue",
    "Pine Street", "Poplar Court", "Queen Street", "River Road", "School Street", "South Street",
    "Spring Street", "Station Road", "Sunset Drive", "Union Street", "Valley Road", "Vine Street",
    "Walnut Street", "Willow Lane",
];

#[rustfmt::skip]
pub(crate) const LATIN: &[&str] = &[
    "ad", "amet", "anima", "aqua", "arbor", "ars", "aurum", "bellum", "bonus", "caelum", "campus",
    "canto", "carmen", "cura", "dies", "dolor", "domus", "elit", "et", "fabula", "fames", "fides",
    "flumen", "forma", "gloria", "gratia", "herba", "hora", "ignis", "in", "ipsum", "iter",
    "labor", "lacus", "liber", "littera", "locus", "lorem", "lumen", "luna", "magnus", "manus",
    "mare", "mens", "mons", "mora", "navis", "nox", "numerus", "opus", "ordo", "pars", "pax",
    "pons", "porta", "quies", "ratio", "rosa", "saxum", "sed", "semper", "silva", "sol", "stella",
    "tempus", "terra", "umbra", "unda", "urbs", "ventus", "verbum", "via", "vita", "vox",
];

/// Countries and territories by their code of ISO 3166-1, in the order of codes, under short
/// English names.
#[rustfmt::skip]
pub(crate) const COUNTRIES: &[(&str, &str)] = &[
    ("AD", "Andorra"), ("AE", "United Arab Emirates"), ("AF", "Afghanistan"),
    ("AG", "Antigua and Barbuda"), ("AI", "Anguilla"), ("AL", "Albania"), ("AM", "Armenia"),
    ("AO", "Angola"), ("AQ", "Antarctica"), ("AR", "Argentina"), ("AS", "American Samoa"),
    ("AT", "Austria"), ("AU", "Australia"), ("AW", "Aruba"), ("AX", "Aland Islands"),
    ("AZ", "Azerbaijan"), ("BA", "Bosnia and Herzegovina"), ("BB", "Barbados"),
    ("BD", "Bangladesh"), ("BE", "Belgium"), ("BF", "Burkina Faso"), ("BG", "Bulgaria"),
    ("BH", "Bahrain"), ("BI", "Burundi"), ("BJ", "Benin"), ("BL", "Saint Barthelemy"),
    ("BM", "Bermuda"), ("BN", "Brunei"), ("BO", "Bolivia"), ("BR", "Brazil"), ("BS", "Bahamas"),
    ("BT", "Bhutan"), ("BV", "Bouvet Island"), ("BW", "Botswana"), ("BY", "Belarus"),
    ("BZ", "Belize"), ("CA", "Canada"), ("CC", "Cocos Islands"),
    ("CD", "Democratic Republic of the Congo"), ("CF", "Central African Republic"), ("CG", "Congo"),
    ("CH", "Switzerland"), ("CI", "Ivory Coast"), ("CK", "Cook Islands"), ("CL", "Chile"),
    ("CM", "Cameroon"), ("CN", "China"), ("CO", "Colombia"), ("CR", "Costa Rica"), ("CU", "Cuba"),
    ("CV", "Cape Verde"), ("CX", "Christmas Island"), ("CY", "Cyprus"), ("CZ", "Czechia"),
    ("DE", "Germany"), ("DJ", "Djibouti"), ("DK", "Denmark"), ("DM", "Dominica"),
    ("DO", "Dominican Republic"), ("DZ", "Algeria"), ("EC", "Ecuador"), ("EE", "Estonia"),
    ("EG", "Egypt"), ("EH", "Western Sahara"), ("ER", "Eritrea"), ("ES", "Spain"),
    ("ET", "Ethiopia"), ("FI", "Finland"), ("FJ", "Fiji"), ("FK", "Falkland Islands"),
    ("FM", "Micronesia"), ("FO", "Faroe Islands"), ("FR", "France"), ("GA", "Gabon"),
    ("GB", "United Kingdom"), ("GD", "Grenada"), ("GE", "Georgia"), ("GF", "French Guiana"),
    ("GG", "Guernsey"), ("GH", "Ghana"), ("GI", "Gibraltar"), ("GL", "Greenland"), ("GM", "Gambia"),
    ("GN", "Guinea"), ("GP", "Guadeloupe"), ("GQ", "Equatorial Guinea"), ("GR", "Greece"),
    ("GS", "South Georgia"), ("GT", "Guatemala"), ("GU", "Guam"), ("GW", "Guinea-Bissau"),
    ("GY", "Guyana"), ("HK", "Hong Kong"), ("HM", "Heard Island and McDonald Islands"),
    ("HN", "Honduras"), ("HR", "Croatia"), ("HT", "Haiti"), ("HU", "Hungary"), ("ID", "Indonesia"),
    ("IE", "Ireland"), ("IL", "Israel"), ("IM", "Isle of Man"), ("IN", "India"),
    ("IO", "British Indian Ocean Territory"), ("IQ", "Iraq"), ("IR", "Iran"), ("IS", "Iceland"),
    ("IT", "Italy"), ("JE", "Jersey"), ("JM", "Jamaica"), ("JO", "Jordan"), ("JP", "Japan"),
    ("KE", "Kenya"), ("KG", "Kyrgyzstan"), ("KH", "Cambodia"), ("KI", "Kiribati"),
    ("KM", "Comoros"), ("KN", "Saint Kitts and Nevis"), ("KP", "North Korea"),
    ("KR", "South Korea"), ("KW", "Kuwait"), ("KY", "Cayman Islands"), ("KZ", "Kazakhstan"),
    ("LA", "Laos"), ("LB", "Lebanon"), ("LC", "Saint Lucia"), ("LI", "Liechtenstein"),
    ("LK", "Sri Lanka"), ("LR", "Liberia"), ("LS", "Lesotho"), ("LT", "Lithuania"),
    ("LU", "Luxembourg"), ("LV", "Latvia"), ("LY", "Libya"), ("MA", "Morocco"), ("MC", "Monaco"),
    ("MD", "Moldova"), ("ME", "Montenegro"), ("MF", "Saint Martin"), ("MG", "Madagascar"),
    ("MH", "Marshall Islands"), ("MK", "North Macedonia"), ("ML", "Mali"), ("MM", "Myanmar"),
    ("MN", "Mongolia"), ("MO", "Macao"), ("MP", "Northern Mariana Islands"), ("MQ", "Martinique"),
    ("MR", "Mauritania"), ("MS", "Montserrat"), ("MT", "Malta"), ("MU", "Mauritius"),
    ("MV", "Maldives"), ("MW", "Malawi"), ("MX", "Mexico"), ("MY", "Malaysia"),
    ("MZ", "Mozambique"), ("NA", "Namibia"), ("NC", "New Caledonia"), ("NE", "Niger"),
    ("NF", "Norfolk Island"), ("NG", "Nigeria"), ("NI", "Nicaragua"), ("NL", "Netherlands"),
    ("NO", "Norway"), ("NP", "Nepal"), ("NR", "Nauru"), ("NU", "Niue"), ("NZ", "New Zealand"),
    ("OM", "Oman"), ("PA", "Panama"), ("PE", "Peru"), ("PF", "French Polynesia"),
    ("PG", "Papua New Guinea"), ("PH", "Philippines"), ("PK", "Pakistan"), ("PL", "Poland"),
    ("PM", "Saint Pierre and Miquelon"), ("PN", "Pitcairn"), ("PR", "Puerto Rico"),
    ("PS", "Palestine"), ("PT", "Portugal"), ("PW", "Palau"), ("PY", "Paraguay"), ("QA", "Qatar"),
    ("RE", "Reunion"), ("RO", "Romania"), ("RS", "Serbia"), ("RU", "Russia"), ("RW", "Rwanda"),
    ("SA", "Saudi Arabia"), ("SB", "Solomon Islands"), ("SC", "Seychelles"), ("SD", "Sudan"),
    ("SE", "Sweden"), ("SG", "Singapore"), ("SH", "Saint Helena"), ("SI", "Slovenia"),
    ("SJ", "Svalbard and Jan Mayen"), ("SK", "Slovakia"), ("SL", "Sierra Leone"),
    ("SM", "San Marino"), ("SN", "Senegal"), ("SO", "Somalia"), ("SR", "Suriname"),
    ("SS", "South Sudan"), ("ST", "Sao Tome and Principe"), ("SV", "El Salvador"),
    ("SX", "Sint Maarten"), ("SY", "Syria"), ("SZ", "Eswatini"), ("TC", "Turks and Caicos Islands"),
    ("TD", "Chad"), ("TF", "French Southern Territories"), ("TG", "Togo"), ("TH", "Thailand"),
    ("TJ", "Tajikistan"), ("TK", "Tokelau"), ("TL", "Timor-Leste"), ("TM", "Turkmenistan"),
    ("TN", "Tunisia"), ("TO", "Tonga"), ("TR", "Turkey"), ("TT", "Trinidad and Tobago"),
    ("TV", "Tuvalu"), ("TW", "Taiwan"), ("TZ", "Tanzania"), ("UA", "Ukraine"), ("UG", "Uganda"),
    ("UM", "United States Minor Outlying Islands"), ("US", "United States"), ("UY", "Uruguay"),
    ("UZ", "Uzbekistan"), ("VA", "Vatican City"), ("VC", "Saint Vincent and the Grenadines"),
    ("VE", "Venezuela"), ("VG", "British Virgin Islands"), ("VI", "United States Virgin Islands"),
    ("VN", "Vietnam"), ("VU", "Vanuatu"), ("WF", "Wallis and Futuna"), ("WS", "Samoa"),
    ("YE", "Yemen"), ("YT", "Mayotte"), ("ZA", "South Africa"), ("ZM", "Zambia"),
    ("ZW", "Zimbabwe"),
];
