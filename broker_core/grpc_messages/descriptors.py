"""The protocol's compiled .proto files, served by server reflection.

`python -m tools.protos` generates them from `proto/`.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache

_PACKED = """\
c-qZ8TZ|;vRa4#5J>940QB(8S+1d5Zy4GIrj>)V&wsG*rkbcz6l(%17-
M#i$vMN12HM7n3bhZ02_5?nN2;f+X0un?b@`r^Y1tK9uh>s8p<d`G`2#M_&1QLkA2SNymFHj^t!nu!ncJ*Ut4EV3>-
gD1A_q^{pcV=Q@;!?F$t=%<lw9VQ*qkHu7jpNN5)%~M-
bEDNZyXM4%@HUKqkt8<1Va;zGZ^~~7u#~=AZ5|p~^Dt{18x75Pxo32`k^+$i`Cbt&3)f~hZ*26h-UwW|!9Lh(`4bSK-
%=bRWi6Rj#0l~<qogX^q9Da!Qq6A_#1Q%Qd{WDcVKS{~T0s*h<;P&zzelHKHamv24AHi6RBhj*^u;y)wb_P9lAKwp!>o6ybb
ah2tgep($|#X1QqMvFYg1FX+mw=`@TMUAtswkZ5WX6ck_=F@0Pk$>MX7k6n3$MYJ2cJ1hH--q?DY<Abn8b*PW7l|iFx8DFbY
VTV*nc#fP53;WeY}HfvJvBGn@Mz%DJ#+eM*ZEX;zzNXC;K=5siJMeno(Vnt8P0Lz<ekQ5MNiQFw8agB+R-
WYmV)K6KG|(lR<X?lsL<nhw3KJ><#ngu>g!)K^27w%O_;U$XJM(P-
Qv3(91zi%XaM4A}3rtKGV3+rq?u!w8su9z6rG3<tSy7X9)77R^`~Ee<_CCWkCyPsyMw0ghnbIH))4ZZ56;5{v^F<Th4E>EP-
J{>uj-Zq*xIqpiH!Y8#ynVf!Xb5+-nmb1BFK*&1?QjlxQo01O)gl}cQ5jmZBYKteOR?USO}sMk)U2VwfC`l?>-
c8#M}m&rGxC2%ashooItKm=yfXm;z>hQ3#=-
7^mkDDK4O)gY=A2Ry}~cP2E+=o^*pfK=;sy5>>+)5gAyIZQD>9O!avXb16p%|Dm|h;_QiU*qsZ{-
OX<KS9zHFh#{$Wez>DdET$C8<w_e7Nqnjgpo7+=tC9|C?blZUZY!YHR?v29x9}{M&uOC_Z>(27)&;eSG!14c=#3+OwK_J{jS
+-*9=@LwfS$oSw;0j_8B}H%v&>gYeJH6C;Z?#LVwGj7ht~B+w0WY^%mJhX`-f}9!9!mt6t-
bx)>xFiwcc_N|`=AOl&?hSc4s{_h{?mFqPcjCtrlzyJn}$&qIHcv6k8Ha_2*T%byV-
t~B>sX1$5J`!f*j;EqR@5j_}00^g!U0X4n=m&U7X!XWOAh~vVL)tUn>*CCo}oA-
>i&1Au0vNQ{!`aY)_e@PgP42xi{`ws+Kl?9|Z@bYhmU^<7pRu7HaJ)>uwN?3l1eioo*w2$gcc;UhBr)WcIt`$f_bdR2YWs(x
H8nl*iNaK*wZCI?<YDTN8AF<=;Gytqbkn^*fYe5+JxvBS)*kadEM}7gKnff8g-
Nx{w4ASLES0RQlwR@f35w{WhTmC`<#L`Iz9V7-HJb1TmbfhH+cdLg?)aaJT$7_N>RN$U*!c+)Vfc%yoK-
a)eiHr|Z>~TJ#5{*dgnfoXDKBZ|G6B*SS5O99hB+SsoMzdz_*PDmPL2~Ge!79aIv}v-
$`jS!@6kI}BiBb$BWso>>K9G#rJ+s}^?LfFP#gE~4X?EVE&5#vNW_AJM6a}^W7!v^**deyR19Rv*+lFg{_^1tb1Z|csvPX!3
P#6po-3OR3=m^~?57NHTs2>~c6W3mek$Z)-
d25|#yLFgt8#MzRtd9Bfe#2OqrWzC0X88CH9VW2nA@(w{YN91G)I6u?H|oe$m}XNLH9AIjWtJpnJCj<1juz-3L6HNg-aM{%>
U#}Cw~~&Pxe*a;C!)>U%dA0yZUaP{8$4-P5ea2GQEkqe;i&_GzXmgwDjl}XUTbBZ9(GEzG;EuUa!3r>7`rgD?2-
^DQOKA!O^4HLlt6ais@ZNK^Dt+?xn`$YBjoAGK9dq=A9G>UG2_}53su>{q;W*<gO>rtS>4wg1|F`hQ!cM8Qv6o}EfayW6qfq
s9U$!S3=ym{K%?G8C8jQWiJmy2#mQKi3=x<$h_%{vvt93=tSnPjPiyuF0;HlasiU(=Ng(Pzn@BCeg5Iybsd<>wy;_)>gBjhe
QFLj)>ZBH6UiYg&N`zV6BWF6|k!R{UJfe>$x6~p?dLOq_Gmy|7Zlw|s*DW^4TQKM2IJuiRkuYw>I<M;u`CPC3%@9m+pLVKH`
U1@LI!JNLjte|@xG}_gZd7oI6G>>+rOoy{gBT#^J2d3Dafb&dR{r>;i5-
8$!q7zgJ`FI_8vVVRgoOZVBoV?Gxi~AyPr}~gYNKZ*knH1`(8mS21dzl;;IMgwDYv9J9)KAQ<L2cd{Gjr)Jp}!dix4e!tKD8
l`YD*iIAsO%mB4EP&TABk++8^yPN?-
M|GEI7N>chb#K`5dM<9g3p)$*1G#i?rMzwWaw5(5(JG2_r?t$4p;?dpyCUYdv(6n%p%~{{_e@;TIger_dxPvKlqJ|fRW>+7T
yQC=?3A-
5Kpk{v&@1ejnNsT%koo0+Y6(62pV(dz=MMd&W(A>gs&aNnkhuj>w>a7JEg?+&!VT~_j0|ePN%(YoziMk}SXXQ9UJoThD%h#0
I5`yTHn5g#l8uiXyE73^|NK|bo%*<SCq%D~4xGp?2)fu3i?u!v(@vM`c0-
$z}dVx%4sm^i`mP%5K6UZb1B$@ING7Ei7Y;cm7qYxU0OvPae51`}rsacrTT{=R2xLexP&wJ%YqlAz9@|Oevhegtp5T)L%!>^
&kJs*d~ST;jS2{ifa;GLFVC`c_Kg<~Zg!t*YnpQ!KS)!dWkQ*DZA3)ZA7t(3ns3Da)gOHV_D<q~7~WfT+xW=cHc7MkUnA08!
b=8(N>rE@TOP(Lsk<!E>Gi|q0^xrbwDJvNZ_-P&Eoj7b`~Lz>9vQe=woge)n-
V#9165)m~}0Jc>`Mp;EzlgPp%Tj#Qjn{bYXN;l2uf6Z={s(1wLX^8;1k9nI+lf|2`KqTqJT6Tmfx-
g=NIGMFF6n=zM45B>pPeDW{yr2n0KPOV>U`Y=;ZE6)(^Z`VtmSIs3ph><9QDz?G5{vdLP(8w5=o?(u>ao1ugzI8Wjx-IRJ2&
mW6JVO9)di-8Nr-Y+$XxRyLD=0ZHn>Zi(D*`(AW@#ahiLkaGwd6+E84Br8#=pwlbHzl&P$gd?%YBq`J6K(KLk-
;+Ka(tHd!i*6Veofb821`=#S(JVu++tY$IxY>$|YzNq;+Lqestp738v(%$JhsvRcUNno=rcEA(e2Un(kTbxTz;xC1~mUC8Cs
GHx;rF|ClzrjqGfVrcz&n0KKru~OACNTotWODjG!^Dx85(^*x?6Kv;Tfe)1w?T(`9=^ce52B-
XhQFXbfXgRf1>L(5vkuT&G)?Lw*WJU~;p33u@T2{m`Dh`lAoqbQP-vn^Vs(1-
Kx20ywxN&*6=%*L?Sx#;<#+Ghpk*YGxc*;pAuhnEGgN!TbB_utk^b@BRkDuhNpW^XPBXM(($P{u(HLvHBIV5qt2ML!)lrF+b
4iP4|l^~)}7WsmfOJ*6)EtR&DXpbqI+{FVUdY4eeNvbL2>=7cnqNWy*6T4z`eH*|jix5s^)NQ3y4%!sar?vDGn_S5<Pq7YGX
(#zO(*I?QFHVv|FfsWCVWK1yGL^KVAu`m6Vx_dBrwjQ~C5J;HX#wU+YOa`7oWU@I%VwRSNup%rRJwP41dVQyj{A{B*FOO<y9
R<#N<Ll4sQK-
F0@Vx>Pk2N*y#1nDMA83V0wzh~iJ7s83;P8fD%=v^d_zFO#9Sp?R>|(D82Ga!e(m4LSraMLLru9|K`x7Le?5e1y{Klh%62lV
C(~)7M8$%NcJa-
x6F$sXbLB!&O^ff~;6+%r2CakX+ghPg6#o=w&%=T>Yby}y@3(@dZYjIsw{hwMEcvGx%J1N$3>W>AC_c2s@-
9X2XPl_~on%(c=x%SKX2kE}><UPJ3^?=WII{-ltr>2E$_qteN<?k{!h2fWKrN{$WNBGNoB2yG-KhF1I*(m8`8_X9nvz!3Vp-
ow<}+DE{41Qj4p;h4gZ$jes_C-+yjtF&nk#-
EK`+5dC66cy+j;dxC8N7ETl@jepM!Y|Rl1;Qm0}sy;azra4y!Vus~XO{=aqU9Jt<K^O85IXw+OS=Tw!agq?E-
UdU;57n<>NxI3vMyC7-O6chIPjJn_qa6e0>(Oz!5$*7m-yeS`R&_*OwnsTovn@!#1%zEIY;3Y9$4{Fdi1&cu5-
u>^B;PuKAKZ&BuW)zCHn!?!3U>=dr?4;VUb2K3~GN?H8TpU~}*@N5CCq+BTI*`&6uh#$N|rD@TXDr9zDvw!^#<&I}o$raId|
K=U4^+h7Pd`6`zxs_D2$c(RjpYBDl<dXSa%Op$UZ~lO4rNd+WcBN2GqF$yIC4(z}3jwaeW#(WisZv@)%_5k6a9>2Yhhfb+<P
HWPWD&ZGY^LO*{_o$V7Ut7MRdK`o!@Eo?@@OD=Q~>r?;N4#hQv<L@dGutH@8Kk}ekV!Up1gynPNM0E@8dYKo(xjwNK^!g{li
}i6K{jNzp(4b<8xu@GOXq>#X!7BR!PNQ`Ltp~{1ZYTvr5_I9VHOppFc+&cLM!nrC2OzWUFtz9wtJ$L!en8x2L|1Q^+!$Qnz+
>64q>g;RgH8>vUHpNo14d2Q6UnM<0aOe_w!D*15+oW|R5t3diIP&d(utSWrtB(aTE-
n93k~@@RNr5^A>#WGxG#S_R#9gp3w<(cto8l&mZ66vZjBE>D8Ob0smxU{kwdoW$Zn>Ny1+BJwCL0-
4GrwX&EXXl@nCX#L{!`aUdYec5`FCR7AL5#d!5Au@z!31+PUP01DRki18PX-
v;hps1AuiUv`8goB0GpMm+?J)?cXl2)EZ&Okh+Y^(V^x*?YGC}^Yt87Fcqm6JK-OX_Cen~zxTcE&uaI*&d^z4*8s(1FL>@^Q
UpSbh4dZ^B5Zz$X2O9{lJg{y5JA<j)G6iyGc(4D0pKX=;f#@An4dZVdj00Fs*w{!C~Sq8(aB<Aekj99W@E<B-
xe%z7$#*1dUj32(+-!t2O6O#6{S4q~z9X^3$!tKM*72x83!mcJ`tCW!d(aJ@#?>Q&$W`G%K-
(dW#%tJQYHZpJl=V9WMhj^4`bo7@#3eVuBfVYPcAboDeFWW65wH36?VZq}SZT+hN3CfaSM^c>iq@G(xa*2sS>z%o@Fr-pkLC
Em1(HKB3VP|&k=#J?cGxjy>Oz|K!XqH1HZSQ=PlbZzKfB7bEPmNZre@u~jieN?h6=JeImL#L^ylXk)Zz2)kzcN*dQc&8yA_}
?p`9r+7hT71u{a}DT3jx2Fa4CqASZq;7b)Z0eWc!d_VVp^PxXk=huNo{J>e!`%Vnv5H=b{Fvhv>&|_!Y$dDx=%_*1A1lyOJ1
a<<sg;+5pB<}DO`1*9A9-w8Hp?J)86jKaMz0KENJOgVAnf5vg<t&(Df!2YuW^CcIDU6XD4g-
_>RnHd;PBv;D3D$bLOJG?Q&l$HOyaOcv`8x4x;=G4Al-XXE93KGls_Zj4nSN9_*)m%yRrR2KXg6@lFi<aQNx?%J8_plDr?2J
T#r&?WX-v?D}x-1je#|4Z+ndv;9i7ZAI3y>1z}JUrW88`{5w&du2H3m*Mq*XBZLcaQ%-
kNXvy3&i&vW)(6l?r9b0c((&2S)Ht^E5<D`J)2CMl@`_X3F{<tEo>A>Ond2!NK|kkht%k;Ft-
2elPPaqehItoVXE@>8Ay~qM##4tsecJWm<g_Y4+inI>Eu0Ou!@%x==30#2F3Kq6@6jF}fu_Wpi~Mox760p?D9fVVZ-eA4Ec-
cl27x>Y7mIC7Da&`;sK_{3yH{qr9UY;O(zows(|%&hKIF&YJb6CUY#Oz$ou3Y0(gxALM=&I5Ep{oS-XWmufen)`>bKbSVX-o
j{xxz97VjAC`oRge)}a(iPu))%;k>YT6c#+2FdsdD3!f3-
LH_Wn(ElXMqR&N%Fg_&#`W_0<cllYkm^ZsfaHYw6kb4HHyI8wF;PHz*vf5rz{>l_e(r6f@QGa5sdHOyQH^EXq;-
sE|Scks_85Ury_adkOHoR00RFom<y<Y)?)Jb{?mX4`B?cRNxN|e9e2yB1`C;;MKI1bPYyaYeQ-
+~1{6ss|o@;k#*!G3Ur2I1xpwnwVjr{Qvo*nWWN*i^8mB98?=HyPqLkbsM=VSeRPu<YZqwIjQ`TpP(|XQ##EAR{;7Lfi6DPK
VpxhCN03*dX=>x;EVFe0!kZJAt((wJW{n7#7POtWD#CxjD=v2{)TV=GooD{;6}{UV}>vE06D_k=(4hgYIc_3s-
7Tfwh5~oFOj#R|qb#KfP1^_u`LeGP@Ia^B?u(E8yPmOKT$jw8opaMuYNJL^0Lrby^0uC-QX18t6}J$zKxbd{+KNSR2UqGu(8
>yN}8L5(25%YcxJOB_yZf8TM2>N7R7=D^HO#Ri17QDE350saQa%NB#o=7Cemp|Ea({2nq5hUb>sb<nbaIWDOd3UFCO?=t_$`
onvz!UG<QkgGDc;XYhre$7|uX(fz2LS=M3RMa~(V!m{^en9aPOSZy8ekw2VA)=~u)UM9%7(pgV^LxXQ@ef>gh{^h<F;<N5IY
va@q9dPR%p7X%13JV?v{4X%sghh>ZXZn5ZeP6`;+CQOy_Rr7L20^vo=Y06>EcwSFxKKK2*8Kfs>yRmkvRs%yYYhC;|KMh{##
f#ym$0oiJigUF1hei3p|tl#{>pCJj`$@SkL-8)5$;8;0g@0r2QysV&5>`w-Oo8OahNt;-$YeOy1-G>zku-|mNmE-%=yzxd-H
p<ATq7N5LRM6aJ;C2)BBYM8?L)Wy?S*NnDzf1q!%G>*Sw^_nC&mstv);g%EtXENVpoI($zt|ORs6JJ~9%{-
k||=zW$)JKJe&$P0-ax$AYzYy9cx0j!y8u-
3aUt2LIcQ;0BRA@t8p5?o`Bs<=)rt2$p+)6(7&?h5&0LioDV@fhpWrHTcz=r&?>1w+9JV-WIGn{TXzy>I5W!l*2Wcb|)`V;N
pNpZ1vh`K(~F_SwygX`E#CN`|3+Yn0>jzr*w5hP#?;qfH;gh)M3_Jg$>sDz*={(#s?R5ajTagZr9s_8Raj>t&RmHPh1mF*q;
^P+<+Urv^ls^F{q}n`ow*$u}?|J7;y0nCS!PYAef91H(Mm*0A@T%igay&cj`-
=R<Dl%Y47t3uox62r5nM2<v1{tS$%B$1@^x#`b6L}ws`I~53OUpWBVVbFvjx
"""


@cache
def files() -> dict[str, bytes]:
    """Return each file's FileDescriptorProto by name, imported files first."""
    data = zlib.decompress(base64.b85decode(_PACKED.replace("\n", "")))
    parts = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return {name.decode(): part for name, part in zip(parts[::2], parts[1::2], strict=True)}
