-- The 43 queries of ClickBench over the table of `hits.py`, in the SQL that Spark and DuckDB have in
-- common. Orders decide ties, so that there is one right answer, and thresholds fit a table of some
-- million rows. CAPTURED stands for the first group of a pattern, which engines write differently.

-- q1
SELECT count(*) AS n FROM hits;

-- q2
SELECT count(*) AS n FROM hits WHERE AdvEngineID <> 0;

-- q3
SELECT sum(AdvEngineID) AS s, count(*) AS n, avg(ResolutionWidth) AS a FROM hits;

-- q4
SELECT avg(UserID) AS a FROM hits;

-- q5
SELECT count(DISTINCT UserID) AS n FROM hits;

-- q6
SELECT count(DISTINCT SearchPhrase) AS n FROM hits;

-- q7
SELECT min(EventDate) AS a, max(EventDate) AS b FROM hits;

-- q8
SELECT AdvEngineID, count(*) AS n FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID ORDER BY n
    DESC, AdvEngineID;

-- q9
SELECT RegionID, count(DISTINCT UserID) AS u FROM hits GROUP BY RegionID ORDER BY u DESC, RegionID
    LIMIT 10;

-- q10
SELECT RegionID, sum(AdvEngineID) AS s, count(*) AS c, avg(ResolutionWidth) AS a, count(DISTINCT
    UserID) AS u FROM hits GROUP BY RegionID ORDER BY c DESC, RegionID LIMIT 10;

-- q11
SELECT MobilePhoneModel, count(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' GROUP
    BY MobilePhoneModel ORDER BY u DESC, MobilePhoneModel LIMIT 10;

-- q12
SELECT MobilePhone, MobilePhoneModel, count(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel
    <> '' GROUP BY MobilePhone, MobilePhoneModel ORDER BY u DESC, MobilePhone, MobilePhoneModel
    LIMIT 10;

-- q13
SELECT SearchPhrase, count(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER
    BY c DESC, SearchPhrase LIMIT 10;

-- q14
SELECT SearchPhrase, count(DISTINCT UserID) AS u FROM hits WHERE SearchPhrase <> '' GROUP BY
    SearchPhrase ORDER BY u DESC, SearchPhrase LIMIT 10;

-- q15
SELECT SearchEngineID, SearchPhrase, count(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY
    SearchEngineID, SearchPhrase ORDER BY c DESC, SearchEngineID, SearchPhrase LIMIT 10;

-- q16
SELECT UserID, count(*) AS c FROM hits GROUP BY UserID ORDER BY c DESC, UserID LIMIT 10;

-- q17
SELECT UserID, SearchPhrase, count(*) AS c FROM hits GROUP BY UserID, SearchPhrase ORDER BY c
    DESC, UserID, SearchPhrase LIMIT 10;

-- q18
SELECT count(*) AS n FROM (SELECT UserID, SearchPhrase, count(*) AS c FROM hits GROUP BY UserID,
    SearchPhrase LIMIT 10) AS ten;

-- q19
SELECT UserID, extract(MINUTE FROM EventTime) AS m, SearchPhrase, count(*) AS c FROM hits GROUP BY
    UserID, m, SearchPhrase ORDER BY c DESC, UserID, m, SearchPhrase LIMIT 10;

-- q20
SELECT UserID FROM hits WHERE UserID = 435090932899640449;

-- q21
SELECT count(*) AS n FROM hits WHERE URL LIKE '%google%';

-- q22
SELECT SearchPhrase, min(URL) AS u, count(*) AS c FROM hits WHERE URL LIKE '%google%' AND
    SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC, SearchPhrase LIMIT 10;

-- q23
SELECT SearchPhrase, min(URL) AS u, min(Title) AS t, count(*) AS c, count(DISTINCT UserID) AS d
    FROM hits WHERE Title LIKE '%Google%' AND URL NOT LIKE '%.google.%' AND SearchPhrase <> ''
    GROUP BY SearchPhrase ORDER BY c DESC, SearchPhrase LIMIT 10;

-- q24
SELECT * FROM hits WHERE URL LIKE '%google%' ORDER BY EventTime, WatchID LIMIT 10;

-- q25
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase LIMIT 10;

-- q26
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10;

-- q27
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase, WatchID
    LIMIT 10;

-- q28
SELECT CounterID, avg(length(URL)) AS l, count(*) AS c FROM hits WHERE URL <> '' GROUP BY
    CounterID HAVING count(*) > 1000 ORDER BY l DESC, CounterID LIMIT 25;

-- q29
SELECT regexp_replace(Referer, '^https?://(?:www[.])?([^/]+)/.*$', CAPTURED) AS k,
    avg(length(Referer)) AS l, count(*) AS c, min(Referer) AS m FROM hits WHERE Referer <> ''
    GROUP BY k HAVING count(*) > 1000 ORDER BY l DESC, k LIMIT 25;

-- q30
SELECT sum(ResolutionWidth + 0) AS s0, sum(ResolutionWidth + 1) AS s1, sum(ResolutionWidth + 2) AS
    s2, sum(ResolutionWidth + 3) AS s3, sum(ResolutionWidth + 4) AS s4, sum(ResolutionWidth + 5)
    AS s5, sum(ResolutionWidth + 6) AS s6, sum(ResolutionWidth + 7) AS s7, sum(ResolutionWidth +
    8) AS s8, sum(ResolutionWidth + 9) AS s9, sum(ResolutionWidth + 10) AS s10,
    sum(ResolutionWidth + 11) AS s11, sum(ResolutionWidth + 12) AS s12, sum(ResolutionWidth + 13)
    AS s13, sum(ResolutionWidth + 14) AS s14, sum(ResolutionWidth + 15) AS s15,
    sum(ResolutionWidth + 16) AS s16, sum(ResolutionWidth + 17) AS s17, sum(ResolutionWidth + 18)
    AS s18, sum(ResolutionWidth + 19) AS s19, sum(ResolutionWidth + 20) AS s20,
    sum(ResolutionWidth + 21) AS s21, sum(ResolutionWidth + 22) AS s22, sum(ResolutionWidth + 23)
    AS s23, sum(ResolutionWidth + 24) AS s24, sum(ResolutionWidth + 25) AS s25,
    sum(ResolutionWidth + 26) AS s26, sum(ResolutionWidth + 27) AS s27, sum(ResolutionWidth + 28)
    AS s28, sum(ResolutionWidth + 29) AS s29, sum(ResolutionWidth + 30) AS s30,
    sum(ResolutionWidth + 31) AS s31, sum(ResolutionWidth + 32) AS s32, sum(ResolutionWidth + 33)
    AS s33, sum(ResolutionWidth + 34) AS s34, sum(ResolutionWidth + 35) AS s35,
    sum(ResolutionWidth + 36) AS s36, sum(ResolutionWidth + 37) AS s37, sum(ResolutionWidth + 38)
    AS s38, sum(ResolutionWidth + 39) AS s39, sum(ResolutionWidth + 40) AS s40,
    sum(ResolutionWidth + 41) AS s41, sum(ResolutionWidth + 42) AS s42, sum(ResolutionWidth + 43)
    AS s43, sum(ResolutionWidth + 44) AS s44, sum(ResolutionWidth + 45) AS s45,
    sum(ResolutionWidth + 46) AS s46, sum(ResolutionWidth + 47) AS s47, sum(ResolutionWidth + 48)
    AS s48, sum(ResolutionWidth + 49) AS s49, sum(ResolutionWidth + 50) AS s50,
    sum(ResolutionWidth + 51) AS s51, sum(ResolutionWidth + 52) AS s52, sum(ResolutionWidth + 53)
    AS s53, sum(ResolutionWidth + 54) AS s54, sum(ResolutionWidth + 55) AS s55,
    sum(ResolutionWidth + 56) AS s56, sum(ResolutionWidth + 57) AS s57, sum(ResolutionWidth + 58)
    AS s58, sum(ResolutionWidth + 59) AS s59, sum(ResolutionWidth + 60) AS s60,
    sum(ResolutionWidth + 61) AS s61, sum(ResolutionWidth + 62) AS s62, sum(ResolutionWidth + 63)
    AS s63, sum(ResolutionWidth + 64) AS s64, sum(ResolutionWidth + 65) AS s65,
    sum(ResolutionWidth + 66) AS s66, sum(ResolutionWidth + 67) AS s67, sum(ResolutionWidth + 68)
    AS s68, sum(ResolutionWidth + 69) AS s69, sum(ResolutionWidth + 70) AS s70,
    sum(ResolutionWidth + 71) AS s71, sum(ResolutionWidth + 72) AS s72, sum(ResolutionWidth + 73)
    AS s73, sum(ResolutionWidth + 74) AS s74, sum(ResolutionWidth + 75) AS s75,
    sum(ResolutionWidth + 76) AS s76, sum(ResolutionWidth + 77) AS s77, sum(ResolutionWidth + 78)
    AS s78, sum(ResolutionWidth + 79) AS s79, sum(ResolutionWidth + 80) AS s80,
    sum(ResolutionWidth + 81) AS s81, sum(ResolutionWidth + 82) AS s82, sum(ResolutionWidth + 83)
    AS s83, sum(ResolutionWidth + 84) AS s84, sum(ResolutionWidth + 85) AS s85,
    sum(ResolutionWidth + 86) AS s86, sum(ResolutionWidth + 87) AS s87, sum(ResolutionWidth + 88)
    AS s88, sum(ResolutionWidth + 89) AS s89 FROM hits;

-- q31
SELECT SearchEngineID, ClientIP, count(*) AS c, sum(IsRefresh) AS s, avg(ResolutionWidth) AS a
    FROM hits WHERE SearchPhrase <> '' GROUP BY SearchEngineID, ClientIP ORDER BY c DESC,
    SearchEngineID, ClientIP LIMIT 10;

-- q32
SELECT WatchID, ClientIP, count(*) AS c, sum(IsRefresh) AS s, avg(ResolutionWidth) AS a FROM hits
    WHERE SearchPhrase <> '' GROUP BY WatchID, ClientIP ORDER BY c DESC, WatchID, ClientIP LIMIT
    10;

-- q33
SELECT WatchID, ClientIP, count(*) AS c, sum(IsRefresh) AS s, avg(ResolutionWidth) AS a FROM hits
    GROUP BY WatchID, ClientIP ORDER BY c DESC, WatchID, ClientIP LIMIT 10;

-- q34
SELECT URL, count(*) AS c FROM hits GROUP BY URL ORDER BY c DESC, URL LIMIT 10;

-- q35
SELECT 1 AS one, URL, count(*) AS c FROM hits GROUP BY 1, URL ORDER BY c DESC, URL LIMIT 10;

-- q36
SELECT ClientIP, ClientIP - 1 AS x, ClientIP - 2 AS y, ClientIP - 3 AS z, count(*) AS c FROM hits
    GROUP BY ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3 ORDER BY c DESC, ClientIP LIMIT
    10;

-- q37
SELECT URL, count(*) AS v FROM hits WHERE CounterID = 62 AND EventDate >= DATE '2013-07-01' AND
    EventDate <= DATE '2013-07-31' AND DontCountHits = 0 AND IsRefresh = 0 AND URL <> '' GROUP BY
    URL ORDER BY v DESC, URL LIMIT 10;

-- q38
SELECT Title, count(*) AS v FROM hits WHERE CounterID = 62 AND EventDate >= DATE '2013-07-01' AND
    EventDate <= DATE '2013-07-31' AND DontCountHits = 0 AND IsRefresh = 0 AND Title <> '' GROUP
    BY Title ORDER BY v DESC, Title LIMIT 10;

-- q39
SELECT URL, count(*) AS v FROM hits WHERE CounterID = 62 AND EventDate >= DATE '2013-07-01' AND
    EventDate <= DATE '2013-07-31' AND IsRefresh = 0 AND IsLink <> 0 AND IsDownload = 0 GROUP BY
    URL ORDER BY v DESC, URL LIMIT 10 OFFSET 100;

-- q40
SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN SearchEngineID = 0 AND AdvEngineID =
    0 THEN Referer ELSE '' END AS src, URL AS dst, count(*) AS v FROM hits WHERE CounterID = 62
    AND EventDate >= DATE '2013-07-01' AND EventDate <= DATE '2013-07-31' AND IsRefresh = 0 GROUP
    BY TraficSourceID, SearchEngineID, AdvEngineID, src, dst ORDER BY v DESC, TraficSourceID,
    SearchEngineID, AdvEngineID, src, dst LIMIT 10 OFFSET 1000;

-- q41
SELECT URLHash, EventDate, count(*) AS v FROM hits WHERE CounterID = 62 AND EventDate >= DATE
    '2013-07-01' AND EventDate <= DATE '2013-07-31' AND IsRefresh = 0 AND TraficSourceID IN (-1,
    6) AND RefererHash = 3594120000172545465 GROUP BY URLHash, EventDate ORDER BY v DESC, URLHash,
    EventDate LIMIT 10 OFFSET 10;

-- q42
SELECT WindowClientWidth, WindowClientHeight, count(*) AS v FROM hits WHERE CounterID = 62 AND
    EventDate >= DATE '2013-07-01' AND EventDate <= DATE '2013-07-31' AND IsRefresh = 0 AND
    DontCountHits = 0 AND URLHash = 2868770270353813622 GROUP BY WindowClientWidth,
    WindowClientHeight ORDER BY v DESC, WindowClientWidth, WindowClientHeight LIMIT 10 OFFSET 50;

-- q43
SELECT date_trunc('minute', EventTime) AS m, count(*) AS v FROM hits WHERE CounterID = 62 AND
    EventDate >= DATE '2013-07-14' AND EventDate <= DATE '2013-07-15' AND IsRefresh = 0 AND
    DontCountHits = 0 GROUP BY date_trunc('minute', EventTime) ORDER BY m LIMIT 10 OFFSET 100;
